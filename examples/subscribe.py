"""Follow a job with nothing but redis-py: thinking on stderr, the answer on stdout.

    python examples/subscribe.py JOB_ID --redis unix:///path/to/redis.sock

`thinkq status` says where Redis is. The rules that a reader keeps are in docs/protocol.md.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any

import redis


def follow(connection: redis.Redis, job_id: str) -> int:
    """Print the job's stream to its end; 0 if it was answered."""
    position, attempt = "0-0", 0
    while True:
        # Blocks for a second at most, so that Ctrl-C is heard.
        reply: Any = connection.xread({f"thinkq:stream:{job_id}": position}, block=1000)
        if not reply and not connection.exists(f"thinkq:stream:{job_id}", f"rq:job:{job_id}"):
            print(f"there is no job {job_id}, or its stream has expired", file=sys.stderr)
            return 1
        for entry_id, fields in reply[0][1] if reply else []:
            position = entry_id
            # A worker that lost its job may still write for a moment; its attempt is older.
            if int(fields["attempt"]) < attempt:
                continue
            attempt = int(fields["attempt"])
            if fields["type"] == "restart":
                print("\n[the job begins anew; what came before does not count]", file=sys.stderr)
            elif fields["type"] == "delta":
                target = sys.stderr if fields["is_reasoning"] == "1" else sys.stdout
                print(fields["text"], end="", file=target, flush=True)
            elif fields["type"] == "done":
                result = json.loads(fields["result"])
                print(f"\n[{result['status']}, {result['finish_reason']}]", file=sys.stderr)
                return 0 if result["status"] == "done" else 1


def main() -> int:
    """Parse the command line and follow."""
    parser = argparse.ArgumentParser(description="Follow a thinkq job.")
    parser.add_argument("job_id")
    default = os.environ.get("THINKQ_REDIS_URL", "redis://localhost:6379/0")
    parser.add_argument("--redis", default=default, metavar="URL")
    arguments = parser.parse_args()
    # No socket time-out: redis-py's default of 5 s is for commands that do not block.
    connection = redis.Redis.from_url(
        arguments.redis, decode_responses=True, protocol=2, socket_timeout=None
    )
    try:
        with connection:
            return follow(connection, arguments.job_id)
    except redis.RedisError as error:
        print(f"Redis at {arguments.redis}: {error}; say where it is with --redis", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
