/* SPDX-License-Identifier: MIT */
/* `loch top`: shows the memory of a process that runs with LOCH_TOP=on, live in the terminal. With --all the budgets
 * and processes of this user. */
#include "tool.h"
#include "top_all.h"
#include "top_view.h"
#include <errno.h>
#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#define TOP_PROCESSES 256

typedef struct top_arguments {
    pid_t pid; /* 0 if none was given */
    bool is_once, is_json, is_all;
    const char *budget; /* name or path; NULL if none was given */
    double interval;
} top_arguments;

/* --- the terminal --- */

static volatile sig_atomic_t top_signal; /* the last signal that ends or stops the program; 0 for none */
static volatile sig_atomic_t top_is_resized;
static struct termios top_terminal; /* as it was before */

static void top_note(int number)
{
    if (number == SIGWINCH)
        top_is_resized = 1;
    else if (number != SIGCONT)
        top_signal = number;
    else
        top_is_resized = 1;
}

static void top_enter(void)
{
    struct termios raw = top_terminal;
    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    raw.c_cc[VMIN] = 0;
    raw.c_cc[VTIME] = 0;
    (void)tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
    fputs("\033[?1049h\033[?25l", stdout); /* the second screen; no cursor */
    fflush(stdout);
}

static void top_leave(void)
{
    fputs("\033[?25h\033[?1049l", stdout);
    fflush(stdout);
    (void)tcsetattr(STDIN_FILENO, TCSADRAIN, &top_terminal);
}

static void top_catch(void)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGWINCH, SIGCONT};
    const struct sigaction action = {.sa_handler = top_note};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        (void)sigaction(numbers[i], &action, NULL);
}

/* Stops the program as Ctrl-Z does, with the terminal as it was. */
static void top_stop(void)
{
    const struct sigaction usual = {.sa_handler = SIG_DFL};
    top_leave();
    (void)sigaction(SIGTSTP, &usual, NULL);
    (void)raise(SIGTSTP);
    top_catch();
    top_enter();
    top_signal = 0;
}

static void top_measure(top_style *style)
{
    struct winsize size;
    const bool is_known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col && size.ws_row;
    style->columns = is_known ? size.ws_col : 80;
    style->rows = is_known ? size.ws_row : 24;
}

/* --- live --- */

/* Waits until the time has come, a key was pressed or a signal came. Returns the key; 0 for none. */
static int top_wait(double seconds)
{
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    char key = 0;
    const int ready = poll(&input, 1, (int)(seconds * 1000));
    if (ready > 0 && read(STDIN_FILENO, &key, 1) != 1) top_signal = SIGHUP; /* the terminal has gone */
    return key;
}

/* Handles a key. Returns whether the program goes on. */
static bool top_press(top_style *style, int key)
{
    if (key == ' ') style->is_paused = !style->is_paused;
    if (key == 's') style->order = (top_order)((style->order + 1) % TOP_ORDERS);
    return key != 'q' && key != 'Q' && key != 3 && key != 4;
}

static void top_show(const top_style *style, const top_figures *now, const top_figures *before,
                     const top_history *history)
{
    fputs("\033[?2026h\033[H", stdout); /* terminals that know it show the picture as a whole */
    top_draw(stdout, style, now, before->text ? before : NULL, history);
    fputs("\033[J\033[?2026l", stdout);
    fflush(stdout);
}

/* Returns what was wrong in the end; NULL if the user has quit. Sets `is_gone` if the process has ended. */
static const char *top_watch(const top_arguments *arguments, top_style *style, top_figures *now, bool *is_gone)
{
    static top_history history;
    top_figures before = {.text = NULL};
    const char *wrong = NULL;
    uint64_t next = loch_host_now_ns() + (uint64_t)(arguments->interval * 1e9);
    top_history_add(&history, now);
    for (bool goes_on = true; goes_on && !wrong;) {
        top_measure(style);
        top_is_resized = 0;
        top_show(style, now, &before, &history);
        const uint64_t here = loch_host_now_ns();
        const int key = top_wait(next > here ? (double)(next - here) / 1e9 : 0);
        if (top_signal == SIGTSTP) top_stop();
        goes_on = top_press(style, key) && !top_signal;
        if (!goes_on || style->is_paused || loch_host_now_ns() < next) {
            if (style->is_paused) next = loch_host_now_ns() + (uint64_t)(arguments->interval * 1e9);
            continue;
        }
        top_figures fresh;
        wrong = top_ask(arguments->pid, &fresh, is_gone);
        next = loch_host_now_ns() + (uint64_t)(arguments->interval * 1e9);
        if (wrong) {
            top_figures_free(&fresh);
            continue;
        }
        top_figures_free(&before);
        before = *now;
        *now = fresh;
        top_history_add(&history, now);
    }
    top_figures_free(&before);
    return wrong;
}

static int top_live(const top_arguments *arguments, top_figures *now)
{
    top_style style = {.is_live = true, .interval = arguments->interval};
    bool is_gone = false;
    const char *no_colour = getenv("NO_COLOR");
    style.has_colours = !no_colour || !*no_colour;
    style.is_utf8 = setlocale(LC_CTYPE, "") && !strcmp(nl_langinfo(CODESET), "UTF-8");
    if (tcgetattr(STDIN_FILENO, &top_terminal) != 0) return tool_fail("the terminal cannot be read");
    top_catch();
    top_enter();
    const char *wrong = top_watch(arguments, &style, now, &is_gone);
    top_leave();
    if (is_gone) {
        printf("process %ld has ended\n", (long)arguments->pid);
        return TOOL_DONE;
    }
    return wrong ? tool_fail("%s", wrong) : TOOL_DONE;
}

/* --- all processes --- */

/* Shows all of them until the user has quit. */
static int top_watch_all(const top_arguments *arguments)
{
    top_style style = {.is_live = true};
    int code = TOOL_DONE;
    if (tcgetattr(STDIN_FILENO, &top_terminal) != 0) return tool_fail("the terminal cannot be read");
    top_catch();
    top_enter();
    for (bool goes_on = true; goes_on;) {
        if (!style.is_paused) {
            fputs("\033[?2026h\033[H\033[J", stdout);
            code = top_all_print(stdout, arguments->budget, false);
            fputs("\nq quit, space pause\033[?2026l", stdout);
            fflush(stdout);
        }
        const int key = top_wait(arguments->interval);
        if (top_signal == SIGTSTP) top_stop();
        goes_on = top_press(&style, key) && !top_signal;
    }
    top_leave();
    return code;
}

static int top_show_all(const top_arguments *arguments)
{
    const bool is_live = !arguments->is_once && isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
    if (is_live) return top_watch_all(arguments);
    return top_all_print(stdout, arguments->budget, arguments->is_json);
}

/* --- the command --- */

static int top_parse(int count, char **given, top_arguments *out)
{
    tool_options options = {.command = "top", .count = count, .arguments = given};
    const char *argument, *value;
    while ((argument = tool_next(&options))) {
        char *end;
        if (!strcmp(argument, "--once")) {
            out->is_once = true;
        } else if (!strcmp(argument, "--json")) {
            out->is_json = out->is_once = true;
        } else if (!strcmp(argument, "--all")) {
            out->is_all = true;
        } else if (tool_option_value(&options, argument, "--budget", &value)) {
            if (!value || !*value) return tool_misuse("top", "--budget needs a name or a path");
            out->budget = value;
            out->is_all = true;
        } else if (tool_option_value(&options, argument, "--interval", &value)) {
            out->interval = value ? strtod(value, &end) : 0;
            if (!value || end == value || *end || !(out->interval >= 0.1 && out->interval <= 3600))
                return tool_misuse("top", "--interval needs seconds from 0.1 to 3600");
        } else {
            errno = 0;
            const long pid = strtol(argument, &end, 10);
            if (*argument == '-' || out->pid) return tool_misuse("top", "\"%s\" is not understood", argument);
            if (end == argument || *end || pid <= 0 || errno || pid != (pid_t)pid)
                return tool_misuse("top", "\"%s\" is not the number of a process", argument);
            out->pid = (pid_t)pid;
        }
    }
    if (out->is_all && out->pid) return tool_misuse("top", "--all and --budget take no process");
    return TOOL_DONE;
}

/* Finds the process to look at. Prints a list if there are several. Returns false if there is none to show. */
static bool top_choose(top_arguments *arguments, int *code)
{
    pid_t found[TOP_PROCESSES];
    if (arguments->pid) return true;
    const size_t count = top_list(found, TOP_PROCESSES);
    if (count == 1) {
        arguments->pid = found[0];
        return true;
    }
    *code = TOOL_DONE;
    if (!count) *code = tool_fail("no process can be looked at: start it with LOCH_TOP=on");
    for (size_t i = 0; i < count; i++) {
        top_figures figures;
        bool is_gone;
        uint64_t bytes = 0;
        if (!top_ask(found[i], &figures, &is_gone)) {
            for (size_t k = 0; k < figures.allocators_count; k++)
                bytes += figures.allocators[k].is_wrapper ? 0 : figures.allocators[k].requested;
            printf("%8ld %11s  %s\n", (long)found[i], LOCHI_SIZE_ROUND(bytes, 2), figures.program);
        }
        top_figures_free(&figures);
    }
    return false;
}

static int top_run(int count, char **given)
{
    top_arguments arguments = {.interval = 1};
    top_figures now;
    bool is_gone;
    int code = top_parse(count, given, &arguments);
    if (code == TOOL_DONE && arguments.is_all) return top_show_all(&arguments);
    if (code != TOOL_DONE || !top_choose(&arguments, &code)) return code;
    const char *wrong = top_ask(arguments.pid, &now, &is_gone);
    if (wrong) {
        code = tool_fail("%s", wrong);
    } else if (arguments.is_json) {
        fwrite(now.text, 1, now.bytes, stdout);
    } else if (arguments.is_once || !isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO)) {
        const top_style style = {.columns = 160};
        const top_history history = {.count = 0};
        top_draw(stdout, &style, &now, NULL, &history);
    } else {
        code = top_live(&arguments, &now);
    }
    top_figures_free(&now);
    return code;
}

const tool_command tool_top = {
    "top", "shows the memory of a running program, live",
    "Usage: loch top [PID] [OPTION...]\n"
    "       loch top --all [OPTION...]\n\n"
    "Shows allocators, tags, rates, fragmentation and driver calls of a process that was started with LOCH_TOP=on by\n"
    "this user. Without PID the only such process is taken; several are listed. With --all, shows the budgets that\n"
    "processes of this user share, with their members, and all processes that were started with LOCH_TOP=on.\n\n"
    "  --all          the budgets and processes of this user\n"
    "  --budget PATH  one budget, by its name or the path of its file\n"
    "  --once         print the figures once, as text; also if this is not a terminal\n"
    "  --json         print the figures once, as JSON (docs/snapshot.schema.json; docs/budget.md for --all)\n"
    "  --interval S   seconds between two looks, 0.1 to 3600 (default 1)\n\n"
    "Keys: q quit, space pause, s another order. NO_COLOR turns colours off.\n",
    .run = top_run};
