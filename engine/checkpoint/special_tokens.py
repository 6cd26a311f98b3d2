"""Special text tokens that the published tokenizer folders leave to the code that loads them.

Their order decides their ids: each takes the next free one after the folder's own vocabulary.
"""

from __future__ import annotations

from typing import Final

from antiphon.engine.checkpoint.config import ModelGeneration

END_OF_PROMPT: Final = "<|endofprompt|>"

_CHAT: Final = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", END_OF_PROMPT)
_EVENTS: Final = """
[breath] <strong> </strong> [noise] [laughter] [cough] [clucking] [accent] [quick_breath]
<laughter> </laughter> [hissing] [sigh] [vocalized-noise] [lipsmack] [mn]
"""
_CMU_VOWELS: Final = """
AA AE AH AO AW AY EH ER EY IH IY OW OY UH UW
"""
_CMU_PHONES: Final = """
AA AE AH AO AW AY B CH D DH EH ER EY F G HH IH IY JH K L M N NG OW OY P R S SH T TH UH UW V W Y Z
ZH
"""
_PINYIN: Final = """
a ai an ang ao b c ch d e ei en eng f g h i ian in ing iu ià iàn iàng iào iá ián iáng iáo iè ié
iòng ióng iù iú iā iān iāng iāo iē iě iōng iū iǎ iǎn iǎng iǎo iǒng iǔ j k l m n o ong ou p q r s
sh t u uang ue un uo uà uài uàn uàng uá uái uán uáng uè ué uì uí uò uó uā uāi uān uāng uē uě uī uō
uǎ uǎi uǎn uǎng uǐ uǒ vè w x y z zh à ài àn àng ào á ái án áng áo è èi èn èng èr é éi én éng ér ì
ìn ìng í ín íng ò òng òu ó óng óu ù ùn ú ún ā āi ān āng āo ē ēi ēn ēng ě ěi ěn ěng ěr ī īn īng ō
ōng ōu ū ūn ǎ ǎi ǎn ǎng ǎo ǐ ǐn ǐng ǒ ǒng ǒu ǔ ǔn ǘ ǚ ǜ
"""


def _cmu() -> list[str]:
    """ARPABET phones; a vowel is followed by its three stress forms."""
    vowels = _CMU_VOWELS.split()
    tokens = []
    for phone in _CMU_PHONES.split():
        tokens.append(f"[{phone}]")
        if phone in vowels:
            tokens += [f"[{phone}{stress}]" for stress in range(3)]
    return tokens


def special_tokens(generation: ModelGeneration) -> tuple[str, ...]:
    """Return the special tokens of version 2 or 3 in the order of their ids."""
    tokens = [*_CHAT, *_EVENTS.split()]
    if generation is ModelGeneration.V3:
        tokens += ["<|endofsystem|>", *_cmu(), *(f"[{sound}]" for sound in _PINYIN.split())]
    return tuple(tokens)
