"""Texts on which tokenizers differ: digits, code, scripts, emoji, white space, odd characters."""

# ruff: noqa: RUF001  characters that look alike are the point

import re

_PROSE = """The quick brown fox can't jump; it's lazy, they'll say we've won and I'd agree.
SHOUTING isn't HELPFUL, DON'T YOU'RE WE'LL camelCase snake_case kebab-case HTTPServer2.
Unicode naïve café résumé Straße ÀÉÎÕÜ ÅNGSTRÖM İstanbul ǅ ﬁnal K Ångström.
Пример текста на русском языке, да. Ελληνικά κείμενα. עברית שלום. مرحبا بالعالم.
日本語のテキスト、中文测试。한국어 문장입니다。ภาษาไทย हिन्दी में पाठ తెలుగు தமிழ்
In 2024, 3.14159 and 1,000,000.50 or 0x1F4A9; 007 00 1 12 123 1234 12345 123456 1234567.
def f(x: int) -> str:\n    return f"{x!r:>10}"  # comment\n\tif (a&&b)||!c { y[i]++; }
https://example.com/path?q=1&r=%20#frag user@example.org C:\\dir\\file.txt $HOME ~/.rc
"""

# Flags, skin tones, joined families, a tag sequence, variation selectors.
_EMOJI = (
    "😀😃 🇩🇪🇫🇷🇯🇵 👍🏽👨‍👩‍👧‍👦 ❤️ 🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f"
    " 🤷🏿‍♀️"
)

TEXTS: tuple[str, ...] = (
    "",
    " ",
    "  ",
    "   ",
    "\n",
    "\n\n",
    "\t",
    "\r\n",
    " \n \n  \t x",
    "a",
    " a",
    "a ",
    "a  ",
    "  a  b   c    d     e",
    "\n\n\na\n\n b \n\n\n",
    "a\r\nb\r\n\r\nc\rd",
    "\t\tx\t \ty \t",
    "trailing spaces     \n   next line   ",
    "x\u00a0y\u2003z\u3000w\u200bv\u2028u\u0085t\ufeff",
    " " * 37 + "x" + " " * 64,
    "1 12 123 1234 12345 1234567890",
    "3.14159e-10 1,000,000 $42 50% #1 1st 2nd",
    "٣٤٥ ১২৩ ½ ² Ⅷ ① 一二三 𝟙𝟚",
    "abc123def456 123abc v1.2.3-rc4",
    "don't DON'T Don'T it's IT'S we're WE'RE they'll I'd I'D 'twas 'S x'y",
    "'s 't 're 've 'm 'll 'd 'S 'T 'RE 'VE 'M 'LL 'D '\u017f '\u212a",
    "Hello, world! How are you?",
    "hello_world HelloWorld helloWorld HELLOWorld HTTPServer iPhone XMLHttpRequest",
    "naïve café Straße ÀÉÎÕÜ İstanbul ǅungla ﬁn ªº",
    "e\u0301 n\u0303 a\u0308\u0304 \u0301x Z\u0351\u036b\u0343",
    "for (int i = 0; i < n; ++i) { a[i] += b[i] << 2; }  // loop",
    'def f(x):\n    """Doc."""\n    return {"k": [1, 2.5, None], **x}\n',
    "if a and b:\n\tprint('x')\n\n\n\telse:\n\t\tpass",
    '<div class="a b">&nbsp;</div>\n<!-- c -->',
    "SELECT * FROM t WHERE a != 'b' AND c >= 10;--",
    "\\frac{a}{b} \\alpha_{i}^{2} $x$ @user #tag ^_^ ~/.rc |pipe| `code`",
    "...---===***!!!???:::;;;,,, (()) [[]] {{}} <<>> \"\"'' ``",
    "!\n!\r\n?/\n//\n# /path/ ./\n",
    "Пример текста. Ελληνικά. עִבְרִית العربية",
    "日本語のテキスト、中文测试。한국어 문장입니다。",
    "中文abc日本123한국 mixed中text",
    "हिन्दी में पाठ ภาษาไทย தமிழ் ქართული አማርኛ",
    _EMOJI,
    "a😀b 😀 c🎉\n🎉1",
    "\u0000\u0001\u0007\u001b[0m\u007f",
    "\ufffd\ufffdx \ufffe \uffff \ue000 \U0010ffff",
    "unmergeable unmergeable, word unmergeable",
    "ĠĊ Ġthe Ãé <0x41> <0x0A> ▁ ▁▁a▁",
    "quick brown fox " * 20,
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "€£¥ ©®™ °±×÷ “quoted” ‘x’ — – … • · § ¶ ← ∑ ∞ ≤",
    _PROSE,
)

SPECIAL_TEXTS: tuple[str, ...] = (
    "<|endoftext|>",
    "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n",
    "a<|im_end|>b <|im_end|> c  <|im_end|>  d",
    "<|im_start|><|im_start|> <|im_start",
    "<s>a</s> <s> b </s><unk>c",
    "x<tool_call>{}<tool_call> y   <user>z <tool>t <tool>",
    "[PAD0] [UNUSED0] <|notoken|>",
)


def training_texts() -> list[str]:
    """Pieces of prose for small vocabularies, with many repeated words and runs of spaces."""
    words = re.findall(r"\S+", _PROSE)
    spaced = [
        "\n".join(" " * n + word for n, word in enumerate(words[at : at + 8]))
        for at in range(0, len(words), 8)
    ]
    return [_PROSE] * 3 + spaced + [*TEXTS[20:44]]
