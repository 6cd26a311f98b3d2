"""Forms with one file, read within bounds."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from starlette.datastructures import Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from antiphon.server.errors import MalformedMessage

MOST_FIELDS = 16
MOST_FIELD_BYTES = 16_384


def is_form(content_type: str) -> bool:
    """Whether a body says that it is a form with files."""
    return content_type.split(";")[0].strip().lower() == "multipart/form-data"


async def read_form(
    content_type: str, body: bytes, file: str
) -> tuple[bytes, list[tuple[str, str]]]:
    """Return the content of the form's file of this name, and its texts in order.

    Raises:
        MalformedMessage: no form, or none with such a file.
    """

    async def once() -> AsyncGenerator[bytes, None]:
        yield body

    parser = MultiPartParser(
        Headers({"content-type": content_type}),
        once(),
        max_files=1,
        max_fields=MOST_FIELDS,
        max_part_size=MOST_FIELD_BYTES,
    )
    try:
        form = await parser.parse()
    except (MultiPartException, KeyError) as error:
        raise MalformedMessage("The form cannot be read.", field="body") from error
    try:
        upload = form.get(file)
        if not isinstance(upload, UploadFile):
            raise MalformedMessage(f"The form has no file named {file}.", field=file)
        texts = [(key, value) for key, value in form.multi_items() if isinstance(value, str)]
        return await upload.read(), texts
    finally:
        await form.close()
