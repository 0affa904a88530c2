"""Texts on which tokenizers are compared: awkward ones, and long mixtures of languages, code, emoji and noise."""
import random

AWKWARD = [
    "",
    " ",
    "   ",
    "\n",
    "\t\t\n\n  \r\n \n",
    "a",
    " a",
    "Hello world",
    "Hello  world   again    and     more",
    "trailing spaces   ",
    "   leading spaces",
    "don't you'll we've I'm he'd it's they're DON'T YOU'LL WE'VE I'M HE'D IT'S THEY'RE",
    "''s 't'''re' 's's ’s can’t",
    "1234567890 3.14159 1,000,000 0x1F 12 345 6789",
    "x1y22z333 v2.0.1-rc3 ½ ² Ⅷ ٣٤٥ १२३ 一二三",
    "naïve café Übergröße ſtraße ΌΣΟΣ İstanbul ıI",
    "e\u0301 vs é, o\u0308 vs ö, \u1112\u1161\u11ab vs 한",
    "日本語のテキスト。中文文本，没有空格！한국어 텍스트",
    "ภาษาไทยไม่มีช่องว่าง हिन्दी में लिखा हुआ عربي من اليمين עברית",
    "😀 👍🏽 👩‍👩‍👧‍👦 🇩🇪🇫🇷 🏳️‍🌈 ☃️ a😀b",
    "\u00a0non\u00a0breaking\u2003em\u2009thin\u3000ideographic\u200bzero\u180emongolian\u0085next\u2028line\u2029par",
    "\u0000nul\u0001\u0007\u001b[31m\u007f",
    "\ufeffbom and \ufffd and \uffff \U0010ffff \U0001f600",
    "def f(x):\n    return {'a': [1, 2.5e-3], \"b\": x != None}  # note\n\n\n\tif x:\r\n\t\tpass\n",
    "https://example.org/a_b?c=d&e=%20f#g user.name+tag@example.co.uk C:\\dir\\file",
    "!!!???...---___***///\\\\\\\"\"\"'''```~~~<<<>>>",
    "<|endoftext|>",
    "one<|endoftext|>two <|endoftext|> three<|endoftext|><|endoftext|>",
    "<|endoftext| > <|im_start|>user\nhi<|im_end|>\n<|im_startX<extra> <extra>  <ex<extra>tra> x<extra> x<extra <extra>s",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "ababababab bababababa abcabcabcabc aabbaabb    aaaa bbbb\n\n\naaaa",
    "THE QUICK BROWN FOX camelCaseWord snake_case_word kebab-case-word SCREAMING_CASE",
    "\u0e33\u0ec9\u102b\u17d2 \U00011000\U0001d400\U0001d7d8 \ud7ff\ue000",
    "a\n b\n  c\n\n d  \n\n\n  e\r\r\n f",
]

SENTENCES = [
    "In the beginning God created the heaven and the earth.",
    "All happy families are alike; every unhappy family is unhappy in its own way.",
    "Die Würde des Menschen ist unantastbar. Sie zu achten ist Verpflichtung aller staatlichen Gewalt.",
    "Longtemps, je me suis couché de bonne heure; parfois, à peine ma bougie éteinte, mes yeux se fermaient.",
    "En un lugar de la Mancha, de cuyo nombre no quiero acordarme, ¿quién vivía?",
    "Nel mezzo del cammin di nostra vita mi ritrovai per una selva oscura.",
    "Todos os seres humanos nascem livres e iguais em dignidade e em direitos.",
    "Wszyscy ludzie rodzą się wolni i równi; żółć, gęś, jaźń.",
    "Všichni lidé rodí se svobodní a sobě rovní co do důstojnosti a práv.",
    "Все люди рождаются свободными и равными в своём достоинстве и правах.",
    "Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια.",
    "Bütün insanlar hür, haysiyet ve haklar bakımından eşit doğarlar. İIıi",
    "Tất cả mọi người sinh ra đều được tự do và bình đẳng về nhân phẩm.",
    "すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて平等である。",
    "人人生而自由，在尊严和权利上一律平等。他们赋有理性和良心。",
    "모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다.",
    "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता है।",
    "يولد جميع الناس أحرارًا متساوين في الكرامة والحقوق.",
    "כל בני האדם נולדו בני חורין ושווים בערכם ובזכויותיהם.",
    "มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ",
    "int main(int argc, char** argv) {\n  for (int i = 0; i < argc; ++i) printf(\"%d: %s\\n\", i, argv[i]);\n  return 0;\n}\n",
    "class Node:\n    def __init__(self, value=None, *children):\n        self.value, self.children = value, list(children)\n",
    "SELECT name, COUNT(*) AS n FROM users WHERE age >= 18 GROUP BY name HAVING n > 1;\n",
    "{\"key\": [1, -2.5, 3e10, true, null], \"nested\": {\"a\": \"b\\u00e9\"}}",
    "<div class=\"x\"><p>Hello&nbsp;world</p><!-- note --></div>",
    "$ grep -rn 'foo' src/*.c | awk -F: '{print $1}' | sort -u > /tmp/out.txt",
    "2026-11-24T18:35:47Z 192.168.0.1 GET /index.html?id=42 HTTP/1.1 200 1234",
    "It's 5 o'clock; they'd said we'll go, but I've no time & she's late.",
    "😀😃😄 🤷🏽‍♀️ 👨‍👩‍👧 🇯🇵 ✈️ 1️⃣ ♥ → ∑ ∞ ≈ ½ €5 £3 ¥100 §4 ©®™",
]


# Parts of Unicode that have been full for long: what a newer version adds is no letter in an older one.
BLOCKS = [(0x01, 0x24F), (0x3A3, 0x3FF), (0x400, 0x52F), (0x5D0, 0x5EA), (0x621, 0x64A), (0x660, 0x669), (0x905, 0x939), (0xE01, 0xE3A), (0x1E00, 0x1EFF),
          (0x2000, 0x2027), (0x2070, 0x2071), (0x2190, 0x22FF), (0x2460, 0x257F), (0x3041, 0x3096), (0x30A1, 0x30FA), (0x4E00, 0x9FA5), (0xAC00, 0xD7A3),
          (0xE000, 0xE0FF), (0xFF01, 0xFF5E), (0x1D400, 0x1D454), (0x1D7CE, 0x1D7FF), (0x1F300, 0x1F64F), (0x20000, 0x2A6D6), (0x10FFF0, 0x10FFFF)]


def noise(random_):
    """A few characters of anywhere in Unicode, or of few kinds."""
    kind = random_.randrange(4)
    if kind == 0:
        return "".join(random_.choice(" \t\n\r\u00a0\u3000'\"a1.é") for _ in range(random_.randrange(1, 12)))
    if kind == 1:
        return "".join(chr(random_.randrange(1, 0x250)) for _ in range(random_.randrange(1, 8)))
    if kind == 2:
        return "".join(chr(random_.randint(*random_.choice(BLOCKS))) for _ in range(random_.randrange(1, 8)))
    return "".join(random_.choice("ab") for _ in range(random_.randrange(1, 40)))


def mixed_text(characters, seed=1):
    random_ = random.Random(seed)
    parts, length = [], 0
    while length < characters:
        part = random_.choice(SENTENCES) if random_.random() < 0.6 else noise(random_)
        part += random_.choice(["", " ", " ", "  ", "\n", "\n\n", ", ", "\t"])
        parts.append(part)
        length += len(part)
    return "".join(parts)[:characters]
