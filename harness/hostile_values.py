"""Partition values from hell."""

from __future__ import annotations

import unicodedata

_WORDS = [
    "../../x", "..", ".", "...", "../", "/", "//", "/etc/passwd", "a/b/c", "a/../b", "~", "~root",
    "-rf", "--", "*", "?", "**/*", "%", "%%", "%2f", "%2F", "%252f", "%00", "%zz", "%u002f",
    "%C3%A9", "%e9", "+", "a+b", "&", "a&b=c", "=", "==", "part=x", "#", "#fragment", "?query=1",
    ";", "a;b", ":", "file:///etc", "s3a://bucket/key", "C:\\con", "\\", "\\\\server\\x", "\\0",
    "'", "''", '"', '""', "`", "`part`", "' OR 1=1 --", "'; DROP TABLE orders; --", "$(reboot)",
    "`reboot`", "${HOME}", "{{x}}", "{", "}", "[", "]", "{a,b}", "[a-z]", "^", "|", "<", ">",
    "<script>", "!", "!!", "@", "(", ")", ",", "a,b", "_", "_hidden", ".hidden", "_SUCCESS",
    "_temporary", "._SUCCESS.crc", "trailing.", "trailing ", " leading", " ", "  ", "a b", "null",
    "NULL", "None", "nan", "NaN", "Infinity", "-0", "0", "00", "01", "1e3", "1.0", "0x10", "true",
    "TRUE", "True", "2026-08-01", "2026-08-01 00:00:00", "HIVE_DEFAULT_PARTITION",
    "__hive_default_partition__", "__HIVE_DEFAULT_PARTITION", "con", "CON", "nul", "aux.txt",
    "COM1", "é", "ü", "ß", "ẞ", "ss", "İ", "i", "I", "ı", "Σ", "σ", "ς", "ﬁ", "fi", "K", "K", "Å",
    "Å", "日本語", "中文", "한국어", "العربية", "עברית", "हिन्दी", "ไทย", "😀", "👩‍👩‍👧‍👦", "🇩🇪", "👍🏽", "𝔘𝔫𝔦",  # noqa: E501
    "\ufeffbom", "a\u200bb", "a\u200db", "\u202egnp.exe", "\u2028", "\u2029", "\u00a0", "\u3000",
    "\u00ad", "\u0300", "\u2025", "\u2024", "\u2215", "\uff0f", "\u29f8", "\uff0e\uff0e", "\ufffd",
    "\uffff", "\U0010ffff", "\ue000", "\u0080", "\u009f", "x" * 200, "é" * 120, "😀" * 60, "%" * 80,
    "\n" * 60, "a" * 250,
]  # fmt: skip

READABLE: list[str | None] = list(
    dict.fromkeys(
        [
            None,
            *_WORDS,
            *(unicodedata.normalize("NFD", word) for word in ("é", "ü", "Å", "한국어")),
            *(f"{chr(code)}" for code in (*range(0x20), 0x7F)),
            *(f"a{chr(code)}b" for code in (0x00, 0x01, 0x09, 0x0A, 0x0D, 0x1B, 0x7F)),
        ]
    )
)
"""Values that all differ."""

REFUSED = ["", "__HIVE_DEFAULT_PARTITION__", "x" * 300, "é" * 150, "%" * 90, "\n" * 100]
"""Values that would read back as another value, or make no folder name."""

VALUES = [*READABLE, *REFUSED]
