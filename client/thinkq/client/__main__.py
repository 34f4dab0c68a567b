"""`python -m thinkq.client` is the `thinkq` command."""

import sys

from thinkq.client.cli import main

sys.exit(main())
