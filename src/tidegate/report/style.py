"""How a report looks. Colours are variables, so that dark screens differ in one place; paper is always white."""

LIGHT = {
    "back": "#f4f6f8",
    "card": "#fff",
    "ink": "#1d2733",
    "lead": "#4b5763",
    "quiet": "#5b6672",
    "faint": "#dfe3e8",
    "released": "#0b6e8f",
    "true": "#7d8894",
    "limit": "#b3261e",
    "kept": "#1c6b3c",
    "alarm": "#8c1d18",
    "alarmed": "#fdecea",
    "inside": "#d9534f",
    "noisy": "#e7a33e",
    "s2": "#c9d3dc",
    "s4": "#8d6bb8",
    "s5": "#63b1c9",
}
DARK = {
    "back": "#11171d",
    "card": "#1a222b",
    "ink": "#e3e9ef",
    "lead": "#b6c1cc",
    "quiet": "#a3afbb",
    "faint": "#33404d",
    "released": "#5fc3e4",
    "true": "#8f9aa6",
    "limit": "#ff8a80",
    "kept": "#7fd6a0",
    "alarm": "#ffb4ab",
    "alarmed": "#4a1f1c",
    "s2": "#4c5a68",
    "s4": "#b79be0",
    "s5": "#3a87a3",
}


def _variables(colours: dict[str, str]) -> str:
    return ":root{" + ";".join(f"--{name}:{colour}" for name, colour in colours.items()) + "}"


STYLE = "\n".join(
    (
        _variables(LIGHT) + ":root{color-scheme:light}",
        "@media screen and (prefers-color-scheme:dark){" + _variables(DARK) + ":root{color-scheme:dark}}",
        "body{margin:0;background:var(--back);color:var(--ink);",
        "font:16px/1.5 system-ui,-apple-system,'Segoe UI',sans-serif}",
        "main{max-width:1040px;margin:0 auto;padding:32px 24px 48px}",
        "h1{font-size:30px;margin:0 0 4px}h2{font-size:19px;margin:0 0 8px}",
        "section{background:var(--card);border:1px solid var(--faint);border-radius:8px;padding:20px 24px;margin:20px 0}",
        ".lead{color:var(--lead);margin:0}",
        ".promise{font-size:17px;border-left:4px solid var(--released);padding-left:14px}",
        ".kept{color:var(--kept)}",
        ".warning{background:var(--alarmed);color:var(--alarm);border-radius:8px;padding:14px 18px}",
        ".inside{border-color:var(--inside)}figure{margin:8px 0 0}figure svg{width:100%;height:auto;display:block}",
        "table{border-collapse:collapse;width:100%;margin-top:12px}",
        "td,th{padding:6px 10px;text-align:right;border-bottom:1px solid var(--faint)}",
        "td:first-child,th:first-child,td:last-child:not(:nth-child(5)),th:last-child:not(:nth-child(5)){text-align:left}",
        "th{color:var(--quiet);font-weight:600}.mark{display:inline-block;width:12px;height:12px;border-radius:3px;",
        "margin-right:8px}.s1{background:var(--released)}.s2{background:var(--s2)}.s3{background:var(--noisy)}",
        ".s4{background:var(--s4)}.s5{background:var(--s5)}.s6{background:var(--card);border:1px solid var(--s2)}",
        "table.words td,table.words th{text-align:left}.quiet{color:var(--quiet);font-size:14px}",
        "div.noisy{border-left:4px solid var(--noisy);padding-left:14px;margin:14px 0}",
        "h3{font-size:16px;margin:14px 0 4px}",
        "h2 .off{color:var(--lead);font-weight:400;white-space:nowrap}.released p{margin:8px 0 0}.only{display:none}",
        ".many{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(440px,100%),1fr));gap:18px 24px}",
        ".many figure,.small{margin:8px 0 0}.small{max-width:640px}figcaption{font-size:14px}",
        "details summary{cursor:pointer;color:var(--released);font-size:14px}summary h2{display:inline;color:var(--ink)}",
        "details table{font-size:13px}details td,details th{padding:2px 8px}td,th{overflow-wrap:break-word;hyphens:auto}",
        "details td{overflow-wrap:anywhere;hyphens:manual}",
        # telephones: everything stays on the screen, and the words of a picture grow as the picture shrinks
        "@media screen and (max-width:600px){main{padding:16px 12px 32px}h1{font-size:24px}section{padding:14px 12px}",
        "table{font-size:13px}td,th{padding:5px 5px 5px 0}figure svg{font-size:16px;overflow:visible}",
        ".wide svg{font-size:24px}h2 .off{white-space:normal}",
        "details td,details th{padding:2px 6px 2px 0}}",
        "footer{color:var(--quiet);font-size:14px}code{font-size:13px}",
        "@media print{body{background:#fff;font-size:12px}main{max-width:none;padding:0}section{border:0;padding:8px 0}",
        "figure,tr,.noisy{break-inside:avoid}h2,h3{break-after:avoid}details:not([open]),.screen{display:none}",
        ".quiet,footer,figcaption{font-size:10px}.promise{font-size:14px}h1{font-size:24px}h2{font-size:16px}}",
    )
)
