"""Words the sentence grammar draws from. All were written for this project."""

from typing import Final


def words(text: str) -> tuple[str, ...]:
    """The words of a text."""
    return tuple(text.split())


def clusters(text: str) -> tuple[str, ...]:
    """Phone groups, separated by commas."""
    return tuple(text.split(","))


NAMES: Final = words(
    "anna ben carla daniel emma frank grace henry iris james karen leo maria nathan olivia paul "
    "rachel samuel tina victor wendy adam beth charles diana edward fiona george helen ivan julia "
    "kevin laura martin nora oscar peter rosa simon theresa walter alice brian claire david ellen"
)
CITIES: Final = words(
    "london paris madrid berlin boston chicago denver dallas seattle toronto sydney tokyo vienna "
    "dublin oslo athens cairo lisbon prague warsaw geneva houston phoenix atlanta miami portland "
    "memphis brussels amsterdam barcelona zurich melbourne montreal"
)
DAYS: Final = words("monday tuesday wednesday thursday friday saturday sunday")
MONTHS: Final = words(
    "january february march april may june july august september october november december"
)
THINGS: Final = words(
    "apple basket bottle bridge button camera candle carpet chair cheese clock coffee computer "
    "corner cup curtain desk dinner door drawer engine envelope fence finger flower fork garden "
    "glass guitar hammer house island jacket juice kettle key kitchen knife ladder lamp leaf "
    "letter "
    "library lunch machine magazine map market medicine message mirror money motor mountain "
    "mushroom needle newspaper notebook ocean office onion orange oven package painting paper "
    "pencil piano picture pillow plate pocket potato printer purse puzzle radio refund river road "
    "roof rope sandwich school shadow shelf ship shirt shoe shower soap sofa spoon stair station "
    "stone story street sugar suitcase sweater table tea telephone television theater ticket "
    "towel toy train treasure tree tunnel umbrella vase vegetable village voice wagon wall watch "
    "water wheel window winter wool yard zebra zipper battery charger keyboard monitor password "
    "invoice account package contract report schedule meeting reservation appointment balance "
    "payment receipt address number screen cable channel journey judge measure beige garage "
    "leisure youth truth breath cloth father mother brother weather feather leather thunder "
    "thread throat thumb thief pleasure vision decision television closure"
)
PEOPLE: Final = words(
    "doctor teacher driver farmer lawyer nurse pilot singer writer baker painter dancer gardener "
    "manager engineer student neighbor stranger captain child woman man girl boy mother father "
    "sister brother uncle aunt cousin friend guest visitor customer waiter actor artist king queen "
    "judge soldier sailor musician author plumber carpenter librarian scientist"
)
ANIMALS: Final = words(
    "dog cat horse cow sheep goat pig chicken duck goose rabbit mouse lion tiger bear wolf fox "
    "eagle owl frog turtle fish whale dolphin elephant monkey giraffe bee spider butterfly snake"
)
ADJECTIVES: Final = words(
    "old young new small large tiny huge quiet loud bright dark heavy light warm cold hot cool "
    "soft hard smooth rough sharp clean dirty empty full fresh gentle happy sad angry calm busy "
    "lazy clever foolish brave shy honest polite strange common rare simple complex easy difficult "
    "cheap expensive short tall wide narrow deep shallow thick thin round square green blue red "
    "yellow purple orange brown black white gray golden silver beautiful careful cheerful curious "
    "dangerous famous foreign modern ancient perfect peaceful pleasant previous public serious "
    "several similar special sudden terrible useful usual valuable various wonderful yellow young"
)
ADVERBS: Final = words(
    "slowly quickly quietly carefully suddenly usually often never always sometimes rarely gently "
    "happily sadly really finally probably certainly clearly exactly hardly nearly recently "
    "together tomorrow yesterday today tonight again already almost early late everywhere outside "
    "inside upstairs downstairs somewhere anyway perhaps instead"
)
VERBS: Final = words(
    "bring buy carry catch change check choose clean close collect cook count cover cross cut "
    "deliver describe design draw drop explain find finish fix follow forget gather give hide hold "
    "keep leave lift like lose love make measure mention miss move need notice offer open order "
    "paint pass pick place prepare print protect pull push reach read receive remember remove "
    "repair replace return save see sell send share show start stop study take teach throw touch "
    "turn use visit want wash watch win wrap write cancel confirm update check choose enjoy"
)
PAST: Final = words(
    "brought bought carried caught changed checked chose cleaned closed collected cooked counted "
    "covered crossed delivered described designed drew dropped explained found finished fixed "
    "followed forgot gathered gave held kept left lifted liked lost loved made measured mentioned "
    "missed moved needed noticed offered opened ordered painted passed picked placed prepared "
    "printed protected pulled pushed reached received remembered removed repaired replaced "
    "returned saved saw sold sent shared showed started stopped studied took taught threw touched "
    "turned used visited wanted washed watched wrapped wrote"
)
MOTIONS: Final = words(
    "walked ran jumped drove sailed climbed marched hurried wandered traveled swam flew danced "
    "crawled rode slept waited worked rested laughed sang shouted whispered stood sat listened"
)
PREPOSITIONS: Final = words(
    "behind under over near beside across through around above below between along toward inside "
    "outside without beyond against past from with by on in at"
)
ABSTRACT: Final = words(
    "idea plan reason question answer problem choice chance change future past truth secret dream "
    "hope fear joy anger patience courage freedom justice knowledge memory nature peace power "
    "silence strength success time trouble trust value wisdom work progress purpose pressure "
    "language music history science distance temperature language luck health wealth faith"
)
UNITS: Final = words(
    "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen"
)
TENS: Final = words("twenty thirty forty fifty sixty seventy eighty ninety")
ORDINALS: Final = words(
    "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth "
    "fifteenth twentieth thirtieth"
)
FOODS: Final = words(
    "bread butter cheese soup salad rice pasta chicken fish beef apples oranges grapes cherries "
    "peaches tomatoes potatoes onions carrots beans sugar honey chocolate cookies cake yogurt "
    "milk tea coffee lemonade pizza sausages mushrooms vegetables"
)
