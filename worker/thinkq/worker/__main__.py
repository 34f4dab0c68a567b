"""`python -m thinkq.worker`."""

from thinkq.worker.main import worker

worker(prog_name="thinkq worker")
