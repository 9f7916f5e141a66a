# SPDX-License-Identifier: MIT
# Writes a file as a C array with its size: cmake -DIN=file -DOUT=file.c -DNAME=name -P embed.cmake
file(READ ${IN} hex HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
string(REGEX REPLACE "((0x..,){24})" "\\1\n" bytes "${bytes}")
file(WRITE ${OUT} "/* Made by embed.cmake. */\n#include <stddef.h>\n\nextern const unsigned char ${NAME}[];\nextern const size_t ${NAME}_bytes;\n\nconst unsigned char ${NAME}[] = {\n${bytes}};\nconst size_t ${NAME}_bytes = sizeof ${NAME};\n")
