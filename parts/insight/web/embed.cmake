# SPDX-License-Identifier: MIT
# Writes the page, the style and the script of the report into a C file: cmake -DWEB=folder -DOUT=file -P embed.cmake
# The script is made of the files below, in this order, inside one function.

set(scripts format.js data.js theme.js view.js chart.js curves.js map.js tables.js compare.js main.js)

set(text "/* Made by embed.cmake. */\n#include \"report_web.h\"\n")
function(embed name file)
    file(SHA256 ${file} hash)
    file(READ ${file} hex HEX)
    string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
    string(REGEX REPLACE "((0x..,){24})" "\\1\n" bytes "${bytes}")
    set(text "${text}\nstatic const unsigned char ${name}_data[] = {\n${bytes}};\nconst report_web lochi_insight_report_${name} = {\n    ${name}_data, sizeof ${name}_data, \"${hash}\"};\n" PARENT_SCOPE)
endfunction()

set(script "(function () {\n'use strict';\n")
foreach(name IN LISTS scripts)
    file(READ ${WEB}/${name} part)
    string(APPEND script "${part}")
endforeach()
string(APPEND script "})();\n")
get_filename_component(folder ${OUT} DIRECTORY)
file(WRITE ${folder}/report.js "${script}")
embed(body ${WEB}/body.html)
embed(style ${WEB}/style.css)
embed(script ${folder}/report.js)
file(WRITE ${OUT} "${text}")
