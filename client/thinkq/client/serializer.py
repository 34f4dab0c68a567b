"""RQ's serializer: MessagePack of plain data. Loading it can never run code, as pickle would."""

from __future__ import annotations

from typing import Any

import msgspec

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder()


class MsgpackSerializer:
    """What RQ's `serializer=` takes."""

    @staticmethod
    def dumps(value: Any) -> bytes:
        """Plain data to bytes. Raises TypeError for anything else."""
        return _encoder.encode(value)

    @staticmethod
    def loads(data: bytes) -> Any:
        """Bytes to plain data. Raises msgspec.DecodeError for anything else, such as a pickle."""
        return _decoder.decode(data)
