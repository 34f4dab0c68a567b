"""`thinkq doctor`: each check of an installation with its remedy."""

from thinkq.daemon.doctor.command import doctor

__all__ = ["doctor"]
