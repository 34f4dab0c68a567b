"""`python -m thinkq.daemon`."""

import sys

from thinkq.client.cli import main
from thinkq.daemon.main import daemon

sys.exit(main(command=daemon, name="python -m thinkq.daemon"))
