#!/usr/bin/env python3
"""Draws the ratios of a gpu.csv (bench/gpu/run.sh), a bar each, with its aim.

    bench/gpu/plot.py gpu.csv [gpu.svg]

Needs nothing beyond Python; with matplotlib the picture may also be a .png or .pdf.
"""
import csv
import sys
from xml.sax.saxutils import escape

COLOURS = {"met": "#3a7d44", "not met": "#b23a48", "-": "#7a7a7a"}


def read(path):
    with open(path, newline="", encoding="utf-8") as file:
        return [
            (f"{row['group']}: {row['what']}", float(row["ratio"]), float(row["aim"]), row["verdict"])
            for row in csv.DictReader(file)
        ]


def write_svg(rows, path):
    """Bars from left to right, names before them."""
    names, scale, step = 420, 400, 22
    most = max(max(ratio, aim) for _, ratio, aim, _ in rows)
    parts = []
    for i, (name, ratio, aim, verdict) in enumerate(rows):
        y = 10 + i * step
        length = ratio / most * scale
        parts.append(f'<text x="{names - 8}" y="{y + 13}" text-anchor="end">{escape(name)}</text>')
        parts.append(
            f'<rect x="{names}" y="{y}" width="{length:.1f}" height="16" fill="{COLOURS[verdict]}"/>'
        )
        parts.append(f'<text x="{names + length + 6:.1f}" y="{y + 13}">{ratio:.2f}</text>')
        if aim > 0:
            x = names + aim / most * scale
            parts.append(f'<path d="M{x:.1f} {y - 2}v20" stroke="black" fill="none"/>')
    height = 20 + len(rows) * step
    with open(path, "w", encoding="utf-8") as file:
        file.write(
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{names + scale + 70}" height="{height}" '
            'font-family="sans-serif" font-size="12">\n' + "\n".join(parts) + "\n</svg>\n"
        )


def write_with_matplotlib(rows, path):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(10, 0.28 * len(rows) + 1))
    for i, (_, ratio, aim, verdict) in enumerate(rows):
        axes.barh(i, ratio, color=COLOURS[verdict])
        if aim > 0:
            axes.plot([aim, aim], [i - 0.45, i + 0.45], color="black")
    axes.set_yticks(range(len(rows)), [name for name, _, _, _ in rows])
    axes.invert_yaxis()
    axes.set_xlabel("of the yardstick")
    figure.tight_layout()
    figure.savefig(path)


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    rows = read(sys.argv[1])
    if not rows:
        sys.exit(f"{sys.argv[1]} has no lines")
    path = sys.argv[2] if len(sys.argv) == 3 else sys.argv[1].rsplit(".", 1)[0] + ".svg"
    if path.endswith(".svg"):
        write_svg(rows, path)
    else:
        write_with_matplotlib(rows, path)
    print(path)


if __name__ == "__main__":
    main()
