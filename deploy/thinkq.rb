# Not run: no Mac was at hand. README.md beside this file says how to fill it in and try it.
class Thinkq < Formula
  include Language::Python::Virtualenv

  desc "Local job queue and batch inference daemon for reasoning models"
  homepage "https://github.com/OWNER/thinkq"
  url "https://github.com/OWNER/thinkq/releases/download/v0.1.0/thinkq-0.1.0.tar.gz"
  sha256 "0000000000000000000000000000000000000000000000000000000000000000"
  license "Apache-2.0"

  depends_on arch: :arm64
  depends_on :macos
  depends_on "python@3.12"
  depends_on "valkey"

  def install
    virtualenv_create(libexec, "python3.12", system_site_packages: false)
    # MLX comes as a wheel only, so there are no resources to build from source; pip takes wheels.
    system "python3.12", "-m", "pip", "--python=#{libexec}/bin/python", "install", "#{buildpath}[worker]"
    bin.install_symlink libexec/"bin/thinkq"
  end

  service do
    run [opt_bin/"thinkq", "daemon", "run"]
    keep_alive successful_exit: false
    throttle_interval 10
    process_type :interactive
    environment_variables PATH: std_service_path_env, LANG: "en_US.UTF-8", LAUNCHED_BY: "thinkq-launchd"
    log_path var/"log/thinkq.log"
    error_log_path var/"log/thinkq.log"
  end

  test do
    ENV["THINKQ_HOME"] = testpath/"home"
    (testpath/"jobs.jsonl").write <<~JSON
      {"messages": [{"role": "user", "content": "What is 47 + 58?"}]}
    JSON
    system bin/"thinkq", "run", testpath/"jobs.jsonl"
    assert_path_exists testpath/"jobs.jsonl.results.jsonl"
  end
end
