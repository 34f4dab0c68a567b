"""rq-dashboard for the queues of thinkq.

    pip install rq-dashboard six
    python examples/dashboard.py -u "unix://$SOCKET"

Takes the options of `rq-dashboard`. Jobs are MessagePack; rq-dashboard expects pickles, and offers
no other choice for its pages of workers and of finished jobs. So RQ's default is replaced before it
starts. That also means that it never loads a pickle, which could run code.
"""

from __future__ import annotations

from rq.serializers import DefaultSerializer

from thinkq.client.serializer import MsgpackSerializer

if __name__ == "__main__":
    DefaultSerializer.dumps = MsgpackSerializer.dumps
    DefaultSerializer.loads = MsgpackSerializer.loads
    from rq_dashboard.cli import main

    main()
