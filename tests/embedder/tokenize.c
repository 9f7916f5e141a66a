/* SPDX-License-Identifier: MIT */
/* tokenize VOCABULARY: prints the tokens of each line of standard input, where \xNN is a byte. golden.py check calls
 * it. */
#include "wordpiece.h"
#include <stdio.h>
#include <stdlib.h>

int main(int count, char **arguments)
{
    static int32_t tokens[256];
    wordpiece *vocabulary;
    char *line = NULL;
    size_t room = 0;
    if (count != 2) return 2;
    LOCH_CHECK(wordpiece_open(arguments[1], &vocabulary));
    while (getline(&line, &room, stdin) > 0) {
        size_t bytes = 0, found;
        for (const char *from = line; *from && *from != '\n';) {
            const int is_byte = *from == '\\';
            line[bytes++] = is_byte ? (char)strtol((char[]){from[2], from[3], 0}, NULL, 16) : *from;
            from += is_byte ? 4 : 1;
        }
        LOCH_CHECK(wordpiece_encode(vocabulary, line, bytes, 256, tokens, &found));
        for (size_t i = 0; i < found; i++)
            printf("%s%d", i ? " " : "", (int)tokens[i]);
        putchar('\n');
    }
    free(line);
    wordpiece_close(vocabulary);
    return 0;
}
