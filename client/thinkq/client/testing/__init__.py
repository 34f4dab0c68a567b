"""For tests of code that uses thinkq: the clients with the queue in memory and scripted answers.

    from thinkq.client.testing import MemoryClient, Reply, ScriptedAnswers

    client = MemoryClient(ScriptedAnswers({"What is 2 + 2?": "4"}))

Jobs are checked, batches named and events read by the code of the real clients. Only the server and
the model are pretended, and time: it passes in steps, one whenever somebody waits or asks for a
status. In a step every running job writes one word.
"""

from __future__ import annotations

from thinkq.client.testing.clients import AsyncMemoryClient, MemoryClient
from thinkq.client.testing.reply import Reply, ScriptedAnswers

__all__ = ["AsyncMemoryClient", "MemoryClient", "Reply", "ScriptedAnswers"]
