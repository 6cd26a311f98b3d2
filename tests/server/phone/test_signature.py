"""Twilio's signatures, and the TwiML that leads a call to the stream."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from antiphon.server.phone.signature import sign
from tests.server.harness import serving
from tests.server.phone.peer import TWILIO_START, wait_for_calls

TOKEN, KEY = "a-token-of-twilios", "a-shared-key-of-twilios"
SIGNED = {
    "calls.public_url": "wss://voice.example.org",
    "calls.twilio_auth_token": TOKEN,
    "calls.twilio_signing_key": KEY,
}
STREAM_URL = "wss://voice.example.org/v1/twilio"
SHA256 = {"X-Twilio-Webhooks-Signature-Settings": "key=k1,algorithm=HMAC_SHA256"}


def test_signatures_agree_with_a_published_example() -> None:
    # Twilio, "Validating requests": the example of its security documentation.
    form = [
        ("CallSid", "CA1234567890ABCDE"),
        ("Caller", "+14158675310"),
        ("Digits", "1234"),
        ("From", "+14158675310"),
        ("To", "+18005551212"),
    ]
    url = "https://mycompany.com/myapp.php?foo=1&bar=2"
    assert sign("12345", url, form) == "GvWf1cFY/Q7PnoempGyD5oXAezc="


def test_signatures_agree_with_twilios_own_package() -> None:
    validator = pytest.importorskip("twilio.request_validator").RequestValidator(TOKEN)
    form = {"CallSid": "CA1", "Digits": "5", "Empty": ""}
    for url in (STREAM_URL, "https://voice.example.org/v1/twilio/twiml?voice=a%20b"):
        assert sign(TOKEN, url, form.items()) == validator.compute_signature(url, form)


@pytest.mark.parametrize(
    ("headers", "accepted"),
    [
        ({"X-Twilio-Signature": sign(TOKEN, STREAM_URL)}, True),
        ({"X-Twilio-Signature": sign(KEY, STREAM_URL, sha256=True), **SHA256}, True),
        ({}, False),
        ({"X-Twilio-Signature": "forged"}, False),
        ({"X-Twilio-Signature": sign("another token", STREAM_URL)}, False),
        ({"X-Twilio-Signature": sign(TOKEN, "wss://evil.example.org/v1/twilio")}, False),
        ({"X-Twilio-Signature": sign(TOKEN, STREAM_URL), **SHA256}, False),
        ({"X-Twilio-Signature": sign(KEY, STREAM_URL, sha256=True)}, False),
    ],
)
async def test_only_twilio_gets_in(headers: dict[str, str], accepted: bool) -> None:
    async with serving(SIGNED) as server:
        url = f"{server.url.replace('http', 'ws')}/v1/twilio"
        if accepted:
            async with connect(url, proxy=None, additional_headers=headers) as peer:
                await peer.send(json.dumps(TWILIO_START))
                await wait_for_calls(server, 1)
            return
        with pytest.raises(InvalidStatus) as caught:
            await connect(url, proxy=None, additional_headers=headers)
        assert caught.value.response.status_code == 401
        assert await wait_for_calls(server, 0) == []


async def test_twiml_leads_a_call_to_the_stream() -> None:
    query = "voice=mid&language=en"
    webhook = f"https://voice.example.org/v1/twilio/twiml?{query}"
    form = {"CallSid": "CA1", "From": "+15550100"}
    signature = {"X-Twilio-Signature": sign(TOKEN, webhook, form.items())}
    async with (
        serving(SIGNED) as server,
        httpx.AsyncClient(trust_env=False, base_url=server.url) as http,
    ):
        path = f"/v1/twilio/twiml?{query}"
        answer = await http.post(path, data=form, headers=signature)
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("application/xml")
        (stream,) = ElementTree.fromstring(answer.text).findall("./Connect/Stream")
        assert stream.attrib == {"url": STREAM_URL}
        assert [each.attrib for each in stream] == [
            {"name": "voice", "value": "mid"},
            {"name": "language", "value": "en"},
        ]
        changed = {**form, "From": "+15550199"}
        assert (await http.post(path, data=changed, headers=signature)).status_code == 401
        other = await http.post("/v1/twilio/twiml?voice=low", data=form, headers=signature)
        assert other.status_code == 401


async def test_twiml_quotes_what_it_is_given() -> None:
    nasty = '"><Hangup/>'
    async with (
        serving({"calls.public_url": "wss://voice.example.org"}) as server,
        httpx.AsyncClient(trust_env=False, base_url=server.url) as http,
    ):
        answer = await http.get("/v1/twilio/twiml", params={"voice": nasty})
        root = ElementTree.fromstring(answer.text)
        assert root.find("./Connect/Stream/Parameter").attrib["value"] == nasty  # type: ignore[union-attr]
        assert root.find(".//Hangup") is None


async def test_twiml_without_a_public_address_says_what_is_missing() -> None:
    async with (
        serving() as server,
        httpx.AsyncClient(trust_env=False, base_url=server.url) as http,
    ):
        answer = await http.get("/v1/twilio/twiml")
        assert answer.status_code == 500
        assert answer.json()["error"]["field"] == "calls.public_url"
