"""Sound, pictures and papers."""

from tests.compat.program import Family, Program

FAMILY = Family(
    "media",
    (
        Program(
            "ffmpeg",
            """ffmpeg -v error -y -f lavfi -i testsrc=duration=1:size=320x240:rate=25 -c:v mpeg4 film.mkv
ffprobe -v error -count_frames -show_entries stream=nb_read_frames -of csv=p=0 film.mkv | grep -q 25""",
            debian="ffmpeg",
            host="ffmpeg ffprobe",
        ),
        Program(
            "imagemagick",
            """convert -size 400x300 gradient:red-blue -rotate 90 -quality 90 made.png
test "$(identify -format %wx%h made.png)" = 300x400""",
            debian="imagemagick",
        ),
        Program(
            "graphviz",
            "echo 'digraph { a -> b -> c -> a }' | dot -Tsvg >made.svg; grep -c '<g id=\"edge' made.svg | grep -qx 3",
            debian="graphviz",
            host="dot",
        ),
        Program(
            "ghostscript-poppler",
            """cat >page.ps <<'END'
%!
/Helvetica findfont 24 scalefont setfont 72 700 moveto (forty two) show showpage
END
ps2pdf page.ps page.pdf; pdftotext page.pdf - | grep -q 'forty two'""",
            debian="ghostscript poppler-utils",
            host="ps2pdf pdftotext",
        ),
        Program(
            "pandoc",
            "printf '# Head\\n\\n* one\\n* two\\n' | pandoc -f markdown -t html | grep -c '<li>' | grep -qx 2",
            debian="pandoc",
            host="pandoc",
        ),
        Program(
            "sox",
            "sox -n -r 8000 tone.wav synth 1 sine 440; soxi -s tone.wav | grep -qx 8000",
            debian="sox",
            host="sox soxi",
        ),
        Program(
            "tesseract",
            """convert -size 400x100 xc:white -pointsize 48 -fill black -annotate +20+65 'HELLO 42' text.png
tesseract text.png - 2>/dev/null | grep -q 'HELLO 42'""",
            debian="tesseract-ocr imagemagick fonts-dejavu-core ghostscript",
        ),
    ),
)
