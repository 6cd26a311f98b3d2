"""Twilio's signatures: proof that a request comes from Twilio and was meant for this address.

SHA-1 with the account's token, or SHA-256 with a shared key for accounts that have one. What is
signed is the public address exactly as Twilio was given it, so behind a proxy the request's own
host does not matter.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Iterable

from starlette.datastructures import Headers

from antiphon.server.calls.config import CallsSection
from antiphon.server.errors import Unauthorized

_SIGNATURE = "x-twilio-signature"
_SETTINGS = "x-twilio-webhooks-signature-settings"


def sign(key: str, url: str, form: Iterable[tuple[str, str]] = (), *, sha256: bool = False) -> str:
    """The signature of a request to `url` with form fields `form`."""
    signed = url + "".join(name + value for name, value in sorted(set(form)))
    digest = hashlib.sha256 if sha256 else hashlib.sha1
    mac = hmac.new(key.encode(), signed.encode(), digest)
    return base64.b64encode(mac.digest()).decode("ascii")


def is_configured(config: CallsSection) -> bool:
    """Whether signatures are checked."""
    return config.twilio_auth_token is not None or config.twilio_signing_key is not None


def check_signature(
    config: CallsSection, headers: Headers, url: str, form: Iterable[tuple[str, str]] = ()
) -> None:
    """Check that Twilio signed this request.

    Raises:
        Unauthorized: no signature, a wrong one, or one by a key that is not configured.
    """
    given = headers.get(_SIGNATURE, "")
    sha256 = "hmac_sha256" in headers.get(_SETTINGS, "").lower()
    secret = config.twilio_signing_key if sha256 else config.twilio_auth_token
    if not given or secret is None:
        raise Unauthorized("The request carries no signature of Twilio's.", field=_SIGNATURE)
    expected = sign(secret.get_secret_value(), url, form, sha256=sha256)
    if not hmac.compare_digest(expected.encode(), given.encode("utf-8", "surrogateescape")):
        raise Unauthorized("The signature is not Twilio's for this address.", field=_SIGNATURE)
