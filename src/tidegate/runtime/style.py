"""How a report looks."""

STYLE = "\n".join(
    (
        "body{margin:0;background:#f4f6f8;color:#1d2733;font:16px/1.5 system-ui,-apple-system,'Segoe UI',sans-serif}",
        "main{max-width:1040px;margin:0 auto;padding:32px 24px 48px}",
        "h1{font-size:30px;margin:0 0 4px}h2{font-size:19px;margin:0 0 8px}",
        "section{background:#fff;border:1px solid #dfe3e8;border-radius:8px;padding:20px 24px;margin:20px 0}",
        ".lead{color:#4b5763;margin:0}.promise{font-size:17px;border-left:4px solid #0b6e8f;padding-left:14px}",
        ".kept{color:#1c6b3c}.warning{background:#fdecea;color:#8c1d18;border-radius:8px;padding:14px 18px}",
        ".inside{border-color:#d9534f}figure{margin:8px 0 0}figure svg{width:100%;height:auto;display:block}",
        "table{border-collapse:collapse;width:100%;margin-top:12px}",
        "td,th{padding:6px 10px;text-align:right;border-bottom:1px solid #eceff2}",
        "td:first-child,th:first-child,td:last-child:not(:nth-child(5)),th:last-child:not(:nth-child(5)){text-align:left}",
        "th{color:#5b6672;font-weight:600}.mark{display:inline-block;width:12px;height:12px;border-radius:3px;",
        "margin-right:8px}.s1{background:#0b6e8f}.s2{background:#c9d3dc}.s3{background:#e7a33e}.s4{background:#8d6bb8}",
        ".s5{background:#63b1c9}.s6{background:#fff;border:1px solid #c9d3dc}",
        "table.words td,table.words th{text-align:left}.quiet{color:#5b6672;font-size:14px}.noisy{border-color:#e7a33e}",
        ".many{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(440px,100%),1fr));gap:18px 24px}",
        ".many figure,.small{margin:8px 0 0}.small,.many figure:only-child{max-width:640px}figcaption{font-size:14px}",
        "details summary{cursor:pointer;color:#0b6e8f;font-size:14px}summary h2{display:inline;color:#1d2733}",
        "details table{font-size:13px}details td,details th{padding:2px 8px}td,th{overflow-wrap:break-word;hyphens:auto}",
        "details td{overflow-wrap:anywhere;hyphens:manual}",
        # telephones: everything stays on the screen, and the words of a picture grow as the picture shrinks
        "@media screen and (max-width:600px){main{padding:16px 12px 32px}h1{font-size:24px}section{padding:14px 12px}",
        "table{font-size:13px}td,th{padding:5px 5px 5px 0}figure svg{font-size:16px;overflow:visible}",
        "details td,details th{padding:2px 6px 2px 0}}",
        "footer{color:#5b6672;font-size:14px}code{font-size:13px}",
        "@media print{body{background:#fff;font-size:12px}main{max-width:none;padding:0}section{border:0;padding:8px 0;",
        "break-inside:avoid}.many figure{break-inside:avoid}details:not([open]),.screen{display:none}",
        ".quiet,footer,figcaption{font-size:10px}.promise{font-size:14px}h1{font-size:24px}h2{font-size:16px}}",
    )
)
