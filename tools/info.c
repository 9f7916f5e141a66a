/* SPDX-License-Identifier: MIT */
/* `loch info`: prints drivers, devices, memory, capabilities and options of this machine. */
#include "json.h"
#include "tool.h"
#include <stdio.h>
#include <string.h>

#define INFO_DEVICES_MAX 64

static const struct {
    uint32_t bit;
    const char *name;
} info_capabilities[] = {
    {LOCH_CAN_HOST_ACCESS, "host_access"},
    {LOCH_CAN_PINNED, "pinned"},
    {LOCH_CAN_REGISTER, "register"},
    {LOCH_CAN_MANAGED, "managed"},
    {LOCH_CAN_VIRTUAL, "virtual"},
    {LOCH_CAN_ALIAS, "alias"},
    {LOCH_CAN_REMAP, "move"},
    {LOCH_CAN_ORDERED, "ordered"},
    {LOCH_CAN_ASYNC, "async"},
    {LOCH_CAN_TIMING, "timing"},
    {LOCH_CAN_CAPTURE, "capture"},
    {LOCH_CAN_PEER, "peer"},
    {LOCH_CAN_RDMA, "rdma"},
    {LOCH_CAN_SHARE_FD, "share_fd"},
    {LOCH_CAN_SHARE_FABRIC, "share_fabric"},
    {LOCH_CAN_HUGE_PAGES, "huge_pages"},
    {LOCH_CAN_NUMA, "numa"},
};
#define INFO_CAPABILITY_COUNT (sizeof info_capabilities / sizeof *info_capabilities)

typedef struct info_names {
    char names[INFO_DEVICES_MAX][LOCH_DEVICE_NAME_MAX];
    size_t count;
} info_names;

static loch_status info_note_name(const char *name, void *user)
{
    info_names *names = user;
    if (names->count < INFO_DEVICES_MAX) snprintf(names->names[names->count++], LOCH_DEVICE_NAME_MAX, "%s", name);
    return LOCH_OK;
}

/* Returns how many of the names are devices of a driver. */
static size_t info_count_of(const info_names *names, const char *driver)
{
    size_t count = 0;
    const size_t length = strlen(driver);
    for (size_t i = 0; i < names->count; i++)
        count += !strncmp(names->names[i], driver, length) && strchr(":", names->names[i][length]);
    return count;
}

/* Returns why a driver has no devices: the sentence of opening its first device. */
static const char *info_why_none(const loch_driver *driver)
{
    loch_device *device;
    if (!strcmp(driver->name, "sim")) return "made on demand: sim:SIZE";
    if (loch_device_open(driver->name, &device) != LOCH_OK) return loch_error_get()->sentence;
    loch_device_release(device);
    return "no devices";
}

/* --- text --- */

static void info_print_line(const char *label, const char *value)
{
    if (*value) printf("  %-18s %s\n", label, value);
}

static void info_print_bytes(const char *label, size_t bytes)
{
    if (bytes) info_print_line(label, LOCHI_SIZE_ROUND(bytes, 2));
}

static void info_print_device(const char *name, const loch_device_properties *p, const loch_memory_info *memory)
{
    char text[512] = "", piece[64];
    printf("\n%s: %s\n", name, p->model);
    info_print_bytes("memory", memory->total_bytes);
    info_print_bytes("free now", memory->free_bytes);
    info_print_bytes("granule", p->granule_bytes);
    snprintf(piece, sizeof piece, "%d", p->multiprocessors);
    if (p->multiprocessors) info_print_line("processors", piece);
    snprintf(piece, sizeof piece, "%d.%d", p->compute_major, p->compute_minor);
    if (p->compute_major) info_print_line("compute capability", piece);
    info_print_bytes("shared cache", p->l2_bytes);
    info_print_bytes("shared memory", p->shared_bytes);
    info_print_line("bus", p->bus_id);
    info_print_line("driver version", p->driver_version);
    snprintf(piece, sizeof piece, "%d", p->numa_node);
    if (p->numa_node >= 0) info_print_line("NUMA node", piece);
    snprintf(piece, sizeof piece, "%zu", p->mapping_limit);
    if (p->mapping_limit) info_print_line("mappings allowed", piece);
    for (size_t i = 0; i < INFO_CAPABILITY_COUNT; i++)
        if (p->capabilities & info_capabilities[i].bit) {
            strcat(text, *text ? " " : "");
            strcat(text, info_capabilities[i].name);
        }
    info_print_line("can", text);
}

/* Where drivers are printed, and the names of the devices. */
typedef struct info_drivers {
    json_writer *json; /* NULL for text */
    const info_names *names;
} info_drivers;

static loch_status info_print_driver(const loch_driver *driver, void *user)
{
    const info_drivers *drivers = user;
    const size_t count = info_count_of(drivers->names, driver->name);
    if (count)
        printf("  %-6s %s: %zu device%s\n", driver->name, driver->summary, count, count == 1 ? "" : "s");
    else
        printf("  %-6s %s: %s\n", driver->name, driver->summary, info_why_none(driver));
    return LOCH_OK;
}

static void info_print_drivers(const info_names *names)
{
    info_drivers drivers = {NULL, names};
    printf("loch %s\n\ndrivers\n", loch_version());
    LOCH_IGNORE(loch_driver_walk(info_print_driver, &drivers)); /* cannot fail, because its visitor does not fail */
}

static loch_status info_print_unknown(const char *variable, const char *nearest, void *user)
{
    bool *is_first = user;
    if (*is_first) puts("\nvariables that nothing reads");
    *is_first = false;
    printf("  %-22s %s%s%s\n", variable, nearest ? "did you mean " : "", nearest ? nearest : "", nearest ? "?" : "");
    return LOCH_OK;
}

/* Where options are printed, and the first option whose variable cannot be parsed. */
typedef struct info_options {
    json_writer *json; /* NULL for text */
    const char *unreadable;
} info_options;

static loch_status info_print_option(const loch_option *option, void *user)
{
    char value[LOCH_OPTION_VALUE_MAX];
    info_options *options = user;
    const bool is_good = loch_option_get(option->name, value) == LOCH_OK;
    if (!is_good && !options->unreadable) options->unreadable = option->name;
    printf("  %-22s %s\n", option->environment, !is_good ? "(cannot be read)" : *value ? value : "(empty)");
    return LOCH_OK;
}

/* Prints the options in force, and LOCH_ variables that no option reads. Fails with the sentence of the first option
 * whose variable cannot be parsed, after printing everything else. */
static int info_print_options(void)
{
    char value[LOCH_OPTION_VALUE_MAX];
    info_options options = {NULL, NULL};
    bool is_first = true;
    puts("\noptions");
    loch_status status = loch_option_walk(info_print_option, &options);
    if (status == LOCH_OK) status = loch_option_walk_unknown(info_print_unknown, &is_first);
    const char *unreadable = options.unreadable;
    if (status == LOCH_OK && unreadable) status = loch_option_get(unreadable, value);
    return status == LOCH_OK ? TOOL_DONE : tool_fail_status(status);
}

/* --- JSON --- */

static void info_json_device(json_writer *json, const char *name, const loch_device_properties *p,
                             const loch_memory_info *memory)
{
    json_open_object(json, NULL);
    json_text(json, "name", name);
    json_text(json, "driver", p->driver);
    json_text(json, "model", p->model);
    json_number(json, "total_bytes", memory->total_bytes);
    json_number(json, "free_bytes", memory->free_bytes);
    json_number(json, "granule_bytes", p->granule_bytes);
    json_number(json, "alignment_bytes", p->alignment_bytes);
    json_number(json, "mapping_limit", p->mapping_limit);
    json_signed(json, "index", p->index);
    json_signed(json, "numa_node", p->numa_node);
    json_signed(json, "compute_major", p->compute_major);
    json_signed(json, "compute_minor", p->compute_minor);
    json_signed(json, "multiprocessors", p->multiprocessors);
    json_number(json, "l2_bytes", p->l2_bytes);
    json_number(json, "shared_bytes", p->shared_bytes);
    json_text(json, "bus_id", p->bus_id);
    json_text(json, "driver_version", p->driver_version);
    json_open_array(json, "capabilities");
    for (size_t i = 0; i < INFO_CAPABILITY_COUNT; i++)
        if (p->capabilities & info_capabilities[i].bit) json_text(json, NULL, info_capabilities[i].name);
    json_close_array(json);
    json_close_object(json);
}

static loch_status info_json_driver(const loch_driver *driver, void *user)
{
    const info_drivers *drivers = user;
    const size_t count = info_count_of(drivers->names, driver->name);
    json_open_object(drivers->json, NULL);
    json_text(drivers->json, "name", driver->name);
    json_text(drivers->json, "summary", driver->summary);
    json_number(drivers->json, "devices", count);
    if (!count) json_text(drivers->json, "note", info_why_none(driver));
    json_close_object(drivers->json);
    return LOCH_OK;
}

static void info_json_drivers(json_writer *json, const info_names *names)
{
    info_drivers drivers = {json, names};
    json_open_array(json, "drivers");
    LOCH_IGNORE(loch_driver_walk(info_json_driver, &drivers));
    json_close_array(json);
}

static loch_status info_json_variable(const char *variable, const char *nearest, void *user)
{
    json_writer *json = user;
    json_open_object(json, NULL);
    json_text(json, "name", variable);
    if (nearest) json_text(json, "nearest", nearest);
    json_close_object(json);
    return LOCH_OK;
}

static loch_status info_json_option(const loch_option *option, void *user)
{
    char value[LOCH_OPTION_VALUE_MAX];
    info_options *options = user;
    json_writer *json = options->json;
    const bool is_good = loch_option_get(option->name, value) == LOCH_OK;
    if (!is_good && !options->unreadable) options->unreadable = option->name;
    json_open_object(json, NULL);
    json_text(json, "name", option->name);
    json_text(json, "environment", option->environment);
    json_text(json, "type", option->type);
    json_text(json, "default", option->fallback);
    json_text(json, is_good ? "value" : "error", is_good ? value : loch_error_get()->sentence);
    json_close_object(json);
    return LOCH_OK;
}

/* Fails like info_print_options. */
static int info_json_options(json_writer *json)
{
    char value[LOCH_OPTION_VALUE_MAX];
    info_options options = {json, NULL};
    json_open_array(json, "options");
    loch_status status = loch_option_walk(info_json_option, &options);
    json_close_array(json);
    json_open_array(json, "unknown_variables");
    if (status == LOCH_OK) status = loch_option_walk_unknown(info_json_variable, json);
    json_close_array(json);
    const char *unreadable = options.unreadable;
    if (status == LOCH_OK && unreadable) status = loch_option_get(unreadable, value);
    return status == LOCH_OK ? TOOL_DONE : tool_fail_status(status);
}

/* --- the command --- */

static int info_show_devices(const info_names *names, json_writer *json)
{
    for (size_t i = 0; i < names->count; i++) {
        loch_device *device;
        loch_device_properties properties = {.size = sizeof properties};
        loch_memory_info memory = {.size = sizeof memory};
        loch_status status = loch_device_open(names->names[i], &device);
        if (status == LOCH_OK) status = loch_device_get_properties(device, &properties);
        if (status == LOCH_OK) status = loch_device_calculate_memory(device, &memory);
        if (status == LOCH_OK && json) info_json_device(json, names->names[i], &properties, &memory);
        if (status == LOCH_OK && !json) info_print_device(names->names[i], &properties, &memory);
        loch_device_release(device);
        if (status != LOCH_OK) return tool_fail_status(status);
    }
    return TOOL_DONE;
}

static int info_show(const info_names *all, const info_names *shown, bool as_json)
{
    if (!as_json) {
        info_print_drivers(all);
        const int code = info_show_devices(shown, NULL);
        return code == TOOL_DONE ? info_print_options() : code;
    }
    json_writer json = {.file = stdout};
    json_open_object(&json, NULL);
    json_text(&json, "version", loch_version());
    info_json_drivers(&json, all);
    json_open_array(&json, "devices");
    int code = info_show_devices(shown, &json);
    json_close_array(&json);
    if (code == TOOL_DONE) code = info_json_options(&json);
    json_close_object(&json);
    return code;
}

static loch_status info_document_option(const loch_option *option, void *user)
{
    (void)user;
    printf("| `%s` | `%s` | ", option->name, option->environment);
    for (const char *at = option->type; *at; at++)
        printf(*at == '|' ? ", " : "%c", *at);
    printf(" | %s | %s |\n", *option->fallback ? option->fallback : "(empty)", option->text);
    return LOCH_OK;
}

/* Prints the page docs/options.md. */
static int info_print_markdown(void)
{
    puts(
        "# Options\n\nRun-time options, read from the environment or set with `loch_option_set`. "
        "The environment is not read in setuid and setgid programs. This page is what `loch info --options-markdown` "
        "prints.\n\n"
        "An empty variable counts as one that is not set. A value that an option does not take is never replaced by "
        "the "
        "default:\nwhat reads the option fails with `E_INVALID` and a sentence such as `LOCH_POOL_LIMIT is \"abc\": "
        "it takes "
        "bytes, e.g. 8GiB`.\nBytes are a number with or without a unit: KiB, MiB, GiB, TiB (powers of 1024; `8G` is "
        "`8GiB`), "
        "KB, MB, GB, TB (powers of 1000).\nA switch is on, off, yes, no, true, false, 1 or 0. A variable that begins "
        "with "
        "`LOCH_` and that nothing reads is a warning\nin the log when a device is first opened; `loch info` lists such "
        "variables with the name that was probably meant, and every\n`loch` command prints a line for each on standard "
        "error (`loch_option_walk_unknown`).\n\n"
        "| option | environment | takes | default | |\n|---|---|---|---|---|");
    const loch_status status = loch_option_walk(info_document_option, NULL);
    return status == LOCH_OK ? TOOL_DONE : tool_fail_status(status);
}

static int info_run(int count, char **arguments)
{
    tool_options options = {"info", count, arguments, 0};
    const char *argument, *device;
    static info_names all, chosen; /* static because it is large; the program runs one command */
    bool json = false;
    while ((argument = tool_next(&options))) {
        if (!strcmp(argument, "--json")) {
            json = true;
        } else if (!strcmp(argument, "--options-markdown")) {
            return info_print_markdown();
        } else if (tool_option_value(&options, argument, "--device", &device)) {
            if (!device) return tool_misuse("info", "--device needs a device's name");
            if (info_note_name(device, &chosen) != LOCH_OK) return TOOL_FAILED;
        } else {
            return tool_misuse("info", "\"%s\" is not understood", argument);
        }
    }
    loch_status status = loch_device_walk(info_note_name, &all);
    if (status != LOCH_OK) return tool_fail_status(status);
    for (size_t i = 0; i < chosen.count; i++) { /* opens the device before anything is printed */
        loch_device *opened;
        status = loch_device_open(chosen.names[i], &opened);
        if (status != LOCH_OK) return tool_fail_status(status);
        loch_device_release(opened);
    }
    return info_show(&all, chosen.count ? &chosen : &all, json);
}

const tool_command tool_info = {
    "info",
    "devices, memory, capabilities, options",
    "Usage: loch info [--device DEVICE]... [--json]\n\n"
    "Shows the drivers, the devices of this machine with their memory and capabilities, and the options in force.\n\n"
    "  --device DEVICE      only this device; may be repeated; simulated ones too\n"
    "  --json               as one JSON object\n"
    "  --options-markdown   the table of options, as docs/options.md holds it\n",
    .run = info_run,
    .shows_options = true,
};
