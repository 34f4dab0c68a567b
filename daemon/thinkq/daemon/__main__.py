"""`python -m thinkq.daemon`."""

from thinkq.daemon.main import daemon

daemon(prog_name="python -m thinkq.daemon")
