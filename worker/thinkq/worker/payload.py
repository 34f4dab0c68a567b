"""From a queued RQ job to the job it carries."""

from __future__ import annotations

from rq.exceptions import DeserializationError
from rq.job import Job as RQJob

from thinkq.client import keys
from thinkq.client.errors import JobFailed
from thinkq.client.job import Job, decode_payload


def read_job(queued: RQJob) -> Job:
    """The job that was submitted. The task's name is compared, nothing is ever imported or called.

    Raises JobFailed (`bad_payload`) for what thinkq did not queue, InvalidJob for what cannot run.
    """
    try:
        task, arguments = queued.func_name, queued.args
    except DeserializationError:
        raise JobFailed(
            "bad_payload", "the job was not written by thinkq; submit it with thinkq"
        ) from None
    if task != keys.TASK:
        raise JobFailed("bad_payload", f"the job's task is not {keys.TASK}; submit it with thinkq")
    if not isinstance(arguments, list | tuple) or not arguments:
        raise JobFailed("bad_payload", "the job carries no payload; submit it with thinkq")
    return decode_payload(arguments[0])
