/* SPDX-License-Identifier: MIT */
/* `loch complete WORD...`: the words that can stand in the place of the last WORD, for the completion of shells
 * (tools/completion). The other words are those between `loch` and it. Each line of the output is a word, a tab and a
 * description. The line ":file" says that names of files fit, too.
 *
 * Commands, options and names of benchmarks are read from the help texts, so a new option is completed without a change
 * here. The command is for scripts: `loch help` does not list it. */
#include "tool.h"
#include "top_source.h"
#include <stdio.h>
#include <string.h>

#define COMPLETE_PROCESSES_MAX 64

/* A part of a help text. */
typedef struct complete_text {
    const char *at;
    size_t length;
} complete_text;

/* One item of a help text: a line of two columns. */
typedef struct complete_item {
    complete_text name;  /* "-o, --out PATH", or "pool" */
    complete_text about; /* its first line */
    bool is_option;
} complete_item;

/* Values that a help text describes in a sentence. tests/install/check-completion compares them with the program. */
static const struct {
    const char *command, *option, *values;
} complete_lists[] = {{"convert", "--format", "text binary torch chrome folded metrics"},
                      {"fleet", "--fit", "alone least"},
                      {"fleet", "--sharing", "on off"},
                      {"plan", "--method", "auto fast greedy"},
                      {"replay", "--allocator", "pool planned direct libc"}};

/* Prints a candidate if it begins with what was typed: `prefix` and a part of the word. */
static void complete_offer(const char *typed, const char *prefix, complete_text word, complete_text about)
{
    const size_t skipped = strlen(prefix), length = strlen(typed + skipped);
    if (length > word.length || strncmp(typed + skipped, word.at, length) != 0) return;
    printf("%s%.*s\t%.*s\n", prefix, (int)word.length, word.at, (int)about.length, about.at);
}

static complete_text complete_all_of(const char *text)
{
    return (complete_text){text, strlen(text)};
}

/* Finds the next item of a help text, from `*at` on. Skips usage, sentences and further lines of an item. */
static bool complete_next(const char **at, complete_item *out)
{
    while (**at) {
        const char *line = *at;
        const size_t length = strcspn(line, "\n"), indent = strspn(line, " ");
        *at = line + length + (line[length] == '\n');
        if (indent < 2 || indent > 6 || indent >= length) continue;
        const char *gap = strstr(line + indent, "  ");
        if (!gap || gap >= line + length) continue;
        const char *about = gap + strspn(gap, " ");
        out->name = (complete_text){line + indent, (size_t)(gap - line) - indent};
        out->about = (complete_text){about, (size_t)(line + length - about)};
        out->is_option = line[indent] == '-';
        if (out->is_option || indent == 2) return true;
    }
    return false;
}

/* Cuts the next name from an option's column: "-o" and "--out" of "-o, --out PATH". What remains in the end is the
 * placeholder of the value. */
static bool complete_next_name(complete_text *column, complete_text *out)
{
    if (!column->length || *column->at != '-') return false;
    size_t length = 0;
    while (length < column->length && column->at[length] != ',' && column->at[length] != ' ')
        length++;
    *out = (complete_text){column->at, length};
    while (length < column->length && (column->at[length] == ',' || column->at[length] == ' '))
        length++;
    *column = (complete_text){column->at + length, column->length - length};
    return true;
}

static bool complete_is(complete_text text, const char *word, size_t length)
{
    return text.length == length && !strncmp(text.at, word, length);
}

/* Finds the placeholder of the value that an option takes: "DEVICE". Returns false if there is no such option or
 * value. */
static bool complete_find_value(const tool_command *command, const char *option, size_t length, complete_text *out)
{
    complete_item item;
    complete_text name;
    for (const char *at = command->help; complete_next(&at, &item);) {
        bool is_it = false;
        while (item.is_option && complete_next_name(&item.name, &name))
            is_it = is_it || complete_is(name, option, length);
        if (!is_it) continue;
        *out = item.name;
        return item.name.length > 0;
    }
    return false;
}

/* --- values --- */

typedef struct complete_place {
    const char *typed, *prefix;
} complete_place;

static loch_status complete_offer_device(const char *name, void *user)
{
    const complete_place *place = user;
    complete_offer(place->typed, place->prefix, complete_all_of(name), complete_all_of("device of this machine"));
    return LOCH_OK;
}

static void complete_devices(const char *typed, const char *prefix)
{
    complete_place place = {typed, prefix};
    LOCH_IGNORE(loch_device_walk(complete_offer_device, &place)); /* what can be listed is offered */
    complete_offer(typed, prefix, complete_all_of("sim:80GiB"), complete_all_of("simulated device"));
    complete_offer(typed, prefix, complete_all_of("sim:80GiB,unbacked"),
                   complete_all_of("simulated device without contents"));
}

static void complete_processes(const char *typed)
{
    pid_t processes[COMPLETE_PROCESSES_MAX];
    const size_t count = top_list(processes, COMPLETE_PROCESSES_MAX);
    for (size_t i = 0; i < count; i++) {
        char number[32], path[64], name[64] = "";
        snprintf(number, sizeof number, "%ld", (long)processes[i]);
        snprintf(path, sizeof path, "/proc/%ld/comm", (long)processes[i]);
        FILE *file = fopen(path, "r");
        if (file && fgets(name, sizeof name, file)) name[strcspn(name, "\n")] = 0;
        if (file) fclose(file);
        complete_offer(typed, "", complete_all_of(number), complete_all_of(name));
    }
}

/* Offers the values of an option. `prefix` is what precedes the value in the word: "" or "--device=". */
static void complete_value(const tool_command *command, const char *option, size_t length, complete_text placeholder,
                           const char *typed, const char *prefix)
{
    for (size_t i = 0; i < sizeof complete_lists / sizeof *complete_lists; i++) {
        if (strcmp(complete_lists[i].command, command->name) != 0) continue;
        if (!complete_is(complete_all_of(complete_lists[i].option), option, length)) continue;
        for (const char *word = complete_lists[i].values; *word; word += strspn(word, " ")) {
            const complete_text value = {word, strcspn(word, " ")};
            complete_offer(typed, prefix, value, (complete_text){"", 0});
            word += value.length;
        }
    }
    if (complete_is(placeholder, "DEVICE", 6)) complete_devices(typed, prefix);
    if (complete_is(placeholder, "FILE", 4) || complete_is(placeholder, "PATH", 4)) puts(":file");
}

/* --- words --- */

static void complete_options(const tool_command *command, const char *typed)
{
    complete_item item;
    complete_text name;
    for (const char *at = command->help; complete_next(&at, &item);)
        while (item.is_option && complete_next_name(&item.name, &name))
            complete_offer(typed, "", name, item.about);
    complete_offer(typed, "", complete_all_of("--help"), complete_all_of("prints the help of this command"));
}

/* Tells whether a word other than an option was typed before the last one. */
static bool complete_has_word(const tool_command *command, int count, char **words)
{
    complete_text placeholder;
    for (int i = 0; i + 1 < count; i++) {
        if (*words[i] != '-') return true;
        if (complete_find_value(command, words[i], strlen(words[i]), &placeholder)) i++;
    }
    return false;
}

/* Offers what is no option: names of benchmarks, processes, or files. */
static void complete_words(const tool_command *command, int count, char **words)
{
    const char *typed = words[count - 1];
    complete_item item;
    if (command == &tool_info) {
        complete_options(command, typed); /* it takes nothing else */
    } else if (command == &tool_top) {
        complete_processes(typed);
    } else if (command == &tool_bench) {
        if (complete_has_word(command, count, words)) return;
        for (const char *at = command->help; complete_next(&at, &item);)
            if (!item.is_option) complete_offer(typed, "", item.name, item.about);
    } else {
        puts(":file");
    }
}

/* Offers the last of the words behind the name of a command. */
static void complete_command(const tool_command *command, int count, char **words)
{
    const char *typed = words[count - 1], *before = count > 1 ? words[count - 2] : "", *value = strchr(typed, '=');
    complete_text placeholder;
    if (complete_find_value(command, before, strlen(before), &placeholder)) {
        complete_value(command, before, strlen(before), placeholder, typed, "");
    } else if (*typed == '-' && value) {
        char prefix[64];
        const size_t length = (size_t)(value - typed);
        if (length + 2 > sizeof prefix || !complete_find_value(command, typed, length, &placeholder)) return;
        snprintf(prefix, sizeof prefix, "%.*s=", (int)length, typed);
        complete_value(command, typed, length, placeholder, typed, prefix);
    } else if (*typed == '-') {
        complete_options(command, typed);
    } else {
        complete_words(command, count, words);
    }
}

/* Offers names of commands. `is_first` adds what stands in the place of a command. */
static void complete_names(const tool_command *const *commands, size_t count, const char *typed, bool is_first)
{
    for (size_t i = 0; i < count; i++)
        complete_offer(typed, "", complete_all_of(commands[i]->name), complete_all_of(commands[i]->summary));
    if (!is_first) return;
    complete_offer(typed, "", complete_all_of("help"), complete_all_of("prints the help of a command"));
    complete_offer(typed, "", complete_all_of("version"), complete_all_of("prints the version"));
    if (*typed != '-') return;
    complete_offer(typed, "", complete_all_of("--help"), complete_all_of("lists the commands"));
    complete_offer(typed, "", complete_all_of("--version"), complete_all_of("prints the version"));
}

int tool_complete(const tool_command *const *commands, size_t commands_count, int count, char **words)
{
    if (count <= 1) {
        complete_names(commands, commands_count, count ? words[0] : "", true);
    } else if (!strcmp(words[0], "help")) {
        if (count == 2) complete_names(commands, commands_count, words[1], false);
    } else {
        for (size_t i = 0; i < commands_count; i++)
            if (!strcmp(words[0], commands[i]->name)) complete_command(commands[i], count - 1, words + 1);
    }
    return TOOL_DONE;
}
