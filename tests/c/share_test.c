// The share of the C interface: that arguments, results, errors and handles arrive, between members in one process.
// Returns 0 on success.
#define _GNU_SOURCE
#include "checks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

// --- A member ---

static char folder[] = "/tmp/memsaver-c-share-XXXXXX"; // its last part is the machine's name too

struct member {
    memsaver_options device;
    memsaver_share* share;
    memsaver_saver* saver;
};

static struct member join(const char* name, bool lends) {
    struct member made = {MEMSAVER_OPTIONS_INIT, NULL, NULL};
    made.device.driver = MEMSAVER_DRIVER_HOST;
    made.device.host_capacity = 64 * MIB;
    made.device.host_granularity = 64 * 1024;
    made.device.host_machine = strrchr(folder, '/') + 1;
    memsaver_share_options options = MEMSAVER_SHARE_OPTIONS_INIT;
    options.name = name;
    options.priority = lends ? 0 : 7;
    options.ceiling = 60 * MIB;
    options.folder = folder;
    options.answer_within_ns = 3000000000; // machines that run tests are busy
    options.floor = lends ? 0 : MIB;
    OK(memsaver_join_share(&made.device, &options, &made.share));
    made.device.share = made.share;
    OK(memsaver_create(&made.device, &made.saver));
    return made;
}

static void leave(struct member* member) {
    memsaver_destroy(member->saver);
    memsaver_leave_share(member->share);
}

static void* block(struct member* member, const char* tag, size_t bytes, int byte) {
    void* made = NULL;
    OK(memsaver_allocate(member->saver, tag, bytes, 0, &made));
    if (made == NULL) _exit(1);
    memset(made, byte, bytes);
    return made;
}

static bool reads(const void* data, int byte, size_t bytes) {
    for (size_t i = 0; i < bytes; ++i) {
        if (((const unsigned char*)data)[i] != byte) return false;
    }
    return true;
}

static bool lists(memsaver_share* share, const char* text) {
    char* json = NULL;
    OK(memsaver_get_members_json(share, &json));
    const bool has = json != NULL && strstr(json, text) != NULL && json[0] == '[' && json[strlen(json) - 1] == ']';
    memsaver_free_text(json);
    return has;
}

/// The model of these tests: two shared ranges, and one that is copied from another tag.
struct model {
    const char* names[3];
    const void* data[3];
    size_t bytes[3];
    bool copied[3];
    memsaver_publish_options options;
};

static void fill(struct model* model, struct member* member) {
    const struct model made = {
        {"first", "second", "scales"},
        {block(member, "weights", MIB, 1), block(member, "weights", 1000, 2), block(member, "state", 100, 3)},
        {MIB, 1000, 100},
        {false, false, true},
        MEMSAVER_PUBLISH_OPTIONS_INIT};
    *model = made;
    model->options.version = "1";
    model->options.names = model->names;
    model->options.data = model->data;
    model->options.bytes = model->bytes;
    model->options.copied = model->copied;
    model->options.count = 3;
}

static memsaver_attached_range at(memsaver_attached* attached, const char* name) {
    memsaver_attached_range range = MEMSAVER_ATTACHED_RANGE_INIT;
    OK(memsaver_attached_at(attached, name, &range));
    if (range.data == NULL) _exit(1);
    return range;
}

// --- Publishing and attaching ---

static void test_a_model(void) {
    struct member engine = join("engine", true);
    struct member reader = join("reader", true);
    struct model made;
    fill(&made, &engine);
    uint64_t hash = 0;
    OK(memsaver_publish(engine.share, "model", engine.saver, "weights", &made.options, &hash));
    CHECK(hash != 0);
    memsaver_attach_options options = MEMSAVER_ATTACH_OPTIONS_INIT;
    options.hash = &hash;
    memsaver_attached* model = NULL;
    OK(memsaver_attach(reader.share, "model", reader.saver, &options, &model));
    leave(&engine); // the reader keeps the model

    memsaver_attached_info info = MEMSAVER_ATTACHED_INFO_INIT;
    OK(memsaver_get_attached_info(model, &info));
    CHECK(strcmp(info.tag, "model@1") == 0 && info.hash == hash);
    const memsaver_attached_range first = at(model, "first");
    const memsaver_attached_range scales = at(model, "scales");
    CHECK(first.bytes == MIB && first.writable == NULL && reads(first.data, 1, MIB));
    CHECK(reads(at(model, "second").data, 2, 1000));
    CHECK(scales.bytes == 100 && scales.writable == scales.data && reads(scales.data, 3, 100));
    const char* names[4];
    for (size_t i = 0; i < 4; ++i) OK(memsaver_attached_name(model, i, &names[i]));
    CHECK(strcmp(names[0], "first") == 0 && strcmp(names[1], "scales") == 0 && strcmp(names[2], "second") == 0);
    CHECK(names[3] == NULL);
    MISUSE(memsaver_attached_name(model, 0, NULL), "the output pointer is null");
    OK(memsaver_attached_verify(model));
    char self[100];
    snprintf(self, sizeof self, "{\"name\":\"reader\",\"process\":%ld,\"priority\":0,\"floor\":0,", (long)getpid());
    CHECK(lists(reader.share, self));

    memsaver_attached* again = NULL;
    MISUSE(memsaver_attach(reader.share, "model", reader.saver, NULL, &again), "model@1");
    CHECK(again == NULL);
    OK(memsaver_drop(reader.saver, &info.tag, 1));
    MISUSE(memsaver_attached_verify(model), "was dropped");
    memsaver_release_attached(model);
    OK(memsaver_withdraw(reader.share, "model"));
    FAILS(MEMSAVER_UNAVAILABLE, memsaver_attach(reader.share, "model", reader.saver, NULL, &again), "nothing is");
    leave(&reader);
}

// --- Failures ---

static void fail_to_join(void) {
    memsaver_options device = MEMSAVER_OPTIONS_INIT;
    device.driver = MEMSAVER_DRIVER_HOST;
    memsaver_share_options options = MEMSAVER_SHARE_OPTIONS_INIT;
    options.folder = folder;
    memsaver_share* share = NULL;
    FAILS(MEMSAVER_UNAVAILABLE, memsaver_join_share(&device, &options, &share), "a device of this process alone");
    device.host_machine = strrchr(folder, '/') + 1;
    options.folder = "/proc/none";
    FAILS(MEMSAVER_UNAVAILABLE, memsaver_join_share(&device, &options, &share), "/proc/none");
    options.folder = folder;
    options.answer_within_ns = 1;
    MISUSE(memsaver_join_share(&device, &options, &share), "answer_within");
    options.answer_within_ns = 1000000;
    options.linger_ns = -1;
    MISUSE(memsaver_join_share(&device, &options, &share), "linger");
    options.linger_ns = 0;
    options.floor = 2;
    options.ceiling = 1;
    MISUSE(memsaver_join_share(&device, &options, &share), "ceiling");
    options.ceiling = 0;
    options.size = 3;
    MISUSE(memsaver_join_share(&device, &options, &share), "memsaver_share_options");
    MISUSE(memsaver_join_share(&device, NULL, NULL), "the output pointer is null");
    device.host_machine = "a/b";
    MISUSE(memsaver_join_share(&device, NULL, &share), "a/b");
    CHECK(share == NULL);
}

static void fail_to_publish(void) {
    struct member member = join("engine", true);
    memsaver_options alone = MEMSAVER_OPTIONS_INIT;
    alone.driver = MEMSAVER_DRIVER_HOST;
    alone.host_capacity = 16 * MIB;
    memsaver_saver* other = NULL;
    OK(memsaver_create(&alone, &other));
    memsaver_lending* lending = NULL;
    memsaver_attached* attached = NULL;
    MISUSE(memsaver_lend(member.share, other, &lending), "not on the driver of this share");
    MISUSE(memsaver_attach(member.share, "model", other, NULL, &attached), "not on the driver");
    memsaver_destroy(other);
    MISUSE(memsaver_join_share(&member.device, NULL, &member.share), "have a share already");
    member.share = member.device.share;

    struct model model;
    fill(&model, &member);
    uint64_t hash = 0;
#define PUBLISH() memsaver_publish(member.share, "model", member.saver, "weights", &model.options, &hash)
    model.names[1] = "first";
    MISUSE(PUBLISH(), "two ranges have the name \"first\"");
    model.names[1] = NULL;
    MISUSE(PUBLISH(), "the name of a range is null");
    model.names[1] = "second";
    const memsaver_publish_options right = model.options;
    model.options.data = NULL;
    MISUSE(PUBLISH(), "the list of pointers is null");
    model.options = right;
    MISUSE(memsaver_publish(NULL, "model", member.saver, "weights", &right, NULL), "share is null");
    MISUSE(memsaver_publish(member.share, NULL, member.saver, "weights", &right, NULL), "name is null");
    MISUSE(memsaver_publish(member.share, "model", member.saver, NULL, &right, NULL), "tag is null");
    FAILS(MEMSAVER_UNAVAILABLE, memsaver_withdraw(member.share, "model"), "model");
    CHECK(hash == 0);
    OK(PUBLISH());
    CHECK(hash != 0);
    MISUSE(PUBLISH(), "model@1");

    memsaver_attach_options options = MEMSAVER_ATTACH_OPTIONS_INIT;
    options.version = "2";
    FAILS(MEMSAVER_UNAVAILABLE, memsaver_attach(member.share, "model", member.saver, &options, &attached), "model@2");
    options.version = "1";
    const uint64_t wrong = hash + 1;
    options.hash = &wrong;
    FAILS(MEMSAVER_UNAVAILABLE, memsaver_attach(member.share, "model", member.saver, &options, &attached), "hash");
    FAILS(MEMSAVER_UNAVAILABLE, memsaver_attach(member.share, "other", member.saver, NULL, &attached), "model@1");
    options.hash = &hash;
    OK(memsaver_attach(member.share, "model", member.saver, &options, &attached)); // in the same process
    memsaver_attached_range range = MEMSAVER_ATTACHED_RANGE_INIT;
    MISUSE(memsaver_attached_at(attached, "third", &range), "nothing has the name \"third\"");
    OK(memsaver_attached_at(attached, "second", &range));
    CHECK(range.data != model.data[1] && reads(range.data, 2, 1000));
    OK(memsaver_attached_at(attached, "first", &range));
    CHECK(mprotect((void*)(uintptr_t)range.data, 64 * 1024, PROT_READ | PROT_WRITE) == 0); // a reader that insists
    *(char*)(uintptr_t)range.data = 9;
    FAILS(MEMSAVER_PUBLICATION_DAMAGED, memsaver_attached_verify(attached), "\"first\" in \"model@1\"");
    OK(memsaver_attached_at(attached, "second", &range));
    memsaver_release_attached(attached);
    CHECK(reads(range.data, 2, 1000)); // the tag stays
    leave(&member);
    memsaver_leave_share(NULL);
    memsaver_release_attached(NULL);
    memsaver_end_lending(NULL);
}

/// A child of a process with a share is refused, and can release what it inherited.
static void fork_a_member(void) {
    struct member member = join("parent", true);
    struct model model;
    fill(&model, &member);
    OK(memsaver_publish(member.share, "model", member.saver, "weights", &model.options, NULL));
    memsaver_attached* attached = NULL;
    OK(memsaver_attach(member.share, "model", member.saver, NULL, &attached));
    memsaver_lending* lending = NULL;
    OK(memsaver_lend(member.share, member.saver, &lending));
    fflush(NULL);
    const pid_t process = fork();
    if (process == 0) {
        failures = 0;
        memsaver_saver* saver = NULL;
        memsaver_attached_range range = MEMSAVER_ATTACHED_RANGE_INIT;
        char* json = NULL;
        MISUSE(memsaver_get_members_json(member.share, &json), "fork");
        MISUSE(memsaver_create(&member.device, &saver), "fork");
        MISUSE(memsaver_attached_at(attached, "first", &range), "fork");
        memsaver_end_lending(lending);
        memsaver_release_attached(attached);
        leave(&member);
        _exit(failures != 0);
    }
    int status = -1;
    CHECK(waitpid(process, &status, 0) == process && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    OK(memsaver_attached_verify(attached));
    memsaver_end_lending(lending);
    memsaver_release_attached(attached);
    leave(&member);
}

// --- Room ---

static void test_room(void) {
    struct member lender = join("lender", true);
    memsaver_arena_options options = MEMSAVER_ARENA_OPTIONS_INIT;
    options.evictable = true;
    OK(memsaver_make_tag(lender.saver, "idle", &options));
    (void)block(&lender, "idle", 48 * MIB, 1);
    memsaver_lending* lending = NULL;
    OK(memsaver_lend(lender.share, lender.saver, &lending));
    struct member taker = join("taker", false);
    (void)block(&taker, "cache", 40 * MIB, 2);
    CHECK(lists(taker.share, "\"lends\":true,") &&
          lists(taker.share, "\"priority\":7,\"floor\":1048576,\"ceiling\":62914560,"));
    void* more = NULL;
    CHECK(memsaver_allocate(taker.saver, "cache", 24 * MIB, 0, &more) == MEMSAVER_OUT_OF_MEMORY); // over its ceiling
    memsaver_end_lending(lending);
    CHECK(!lists(taker.share, "\"lends\":true,"));
    leave(&taker);
    memsaver_info info = MEMSAVER_INFO_INIT;
    OK(memsaver_get_info(lender.saver, &info));
    CHECK(info.free_bytes == 64 * MIB); // everything has come back to the device
    leave(&lender);
}

int main(void) {
    if (mkdtemp(folder) == NULL) return 1;
    fail_to_join();
    test_a_model();
    fail_to_publish();
    fork_a_member();
    test_room();
    char command[100];
    snprintf(command, sizeof command, "rm -r %s", folder);
    CHECK(system(command) == 0);
    return failures != 0;
}
