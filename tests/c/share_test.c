// The share of the C interface: that arguments, results, errors and handles arrive, between members in one process.
// Returns 0 on success.
#define _GNU_SOURCE
#include "checks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define JOIN(...) MADE(share_options, MEMSAVER_SHARE_OPTIONS_INIT, .folder = folder, __VA_ARGS__)
#define ATTACH(...) MADE(attach_options, MEMSAVER_ATTACH_OPTIONS_INIT, __VA_ARGS__)

// --- A member ---

static char folder[] = "/tmp/memsaver-c-share-XXXXXX"; // its last part is the machine's name too

#define HOST(...) OPTIONS(.driver = MEMSAVER_DRIVER_HOST, .host_capacity = 64 * MIB, __VA_ARGS__)
#define MACHINE(...) HOST(.host_granularity = 64 << 10, .host_machine = strrchr(folder, '/') + 1, __VA_ARGS__)

struct member {
    memsaver_share* share;
    memsaver_saver* saver;
};

static struct member join(const char* name, int32_t priority) {
    struct member made = {NULL, NULL};
    // Machines that run tests are busy.
    OK(memsaver_join_share(MACHINE(),
                           JOIN(.name = name, .priority = priority, .floor = priority != 0 ? MIB : 0,
                                .ceiling = 60 * MIB, .answer_within_ns = 3000000000),
                           &made.share));
    OK(memsaver_create(OPTIONS(.share = made.share), &made.saver));
    return made;
}

static void leave(struct member* member) {
    memsaver_destroy(member->saver);
    memsaver_leave_share(member->share);
}

static void* block(const struct member* member, const char* tag, size_t bytes, int byte) {
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

/// Publishes two shared ranges, and one that is copied from another tag, as "model@1".
static uint64_t publish(const struct member* member) {
    const void* const data[] = {block(member, "weights", MIB, 1), block(member, "weights", 1000, 2),
                                block(member, "state", 100, 3)};
    const size_t bytes[] = {MIB, 1000, 100};
    const bool copied[] = {false, false, true};
    const char *const names[] = {"first", "second", "scales"}, *const twice[] = {"first", "first", "scales"};
    uint64_t hash = 0;
#define PUBLISH(...)                                                                                                   \
    memsaver_publish(member->share, "model", member->saver, "weights",                                                 \
                     MADE(publish_options, MEMSAVER_PUBLISH_OPTIONS_INIT, .version = "1", .names = names,              \
                          .data = data, .bytes = bytes, .copied = copied, .count = 3, __VA_ARGS__),                    \
                     &hash)
    MISUSE(PUBLISH(.names = twice), "two ranges have the name \"first\"");
    MISUSE(PUBLISH(.names = (const char* const[3]){"first"}), "the name of a range is null");
    MISUSE(PUBLISH(.names = NULL), "the list of names is null");
    MISUSE(PUBLISH(.data = NULL), "the list of pointers is null");
    MISUSE(PUBLISH(.bytes = NULL), "the list of sizes is null");
    CHECK(hash == 0);
    OK(PUBLISH(.size = sizeof(memsaver_publish_options)));
    CHECK(hash != 0);
    MISUSE(PUBLISH(.size = sizeof(memsaver_publish_options)), "model@1");
    return hash;
}

static memsaver_attached_range at(memsaver_attached* attached, const char* name) {
    memsaver_attached_range range = {MEMSAVER_ATTACHED_RANGE_INIT};
    OK(memsaver_attached_at(attached, name, &range));
    if (range.data == NULL) _exit(1);
    return range;
}

// --- Publishing and attaching ---

static void test_a_model(void) {
    struct member engine = join("engine", 0), reader = join("reader", 7);
    char self[200];
    snprintf(self, sizeof self,
             "{\"name\":\"reader\",\"process\":%ld,\"priority\":7,\"floor\":1048576,\"ceiling\":62914560,"
             "\"held_bytes\":0,\"lends\":false,\"published_bytes\":0,\"waiting_bytes\":0}",
             (long)getpid());
    CHECK(lists(reader.share, self));
    FAILS(MEMSAVER_UNAVAILABLE, memsaver_withdraw(engine.share, "model"), "model");
    const uint64_t hash = publish(&engine), wrong = hash + 1;
    memsaver_attached* model = NULL;
#define ATTACHING(name, options) memsaver_attach(reader.share, name, reader.saver, options, &model)
    FAILS(MEMSAVER_UNAVAILABLE, ATTACHING("model", ATTACH(.version = "2")), "model@2");
    FAILS(MEMSAVER_UNAVAILABLE, ATTACHING("model", ATTACH(.version = "1", .hash = &wrong)), "hash");
    FAILS(MEMSAVER_UNAVAILABLE, ATTACHING("other", NULL), "model@1");
    MISUSE(ATTACHING("model", ATTACH(.size = 1)), "memsaver_attach_options");
    OK(ATTACHING("model", ATTACH(.hash = &hash)));
    leave(&engine); // the reader keeps the model

    memsaver_attached_info info = {MEMSAVER_ATTACHED_INFO_INIT};
    OK(memsaver_get_attached_info(model, &info));
    CHECK(strcmp(info.tag, "model@1") == 0 && info.hash == hash);
    const memsaver_attached_range first = at(model, "first"), second = at(model, "second"), own = at(model, "scales");
    CHECK(first.bytes == MIB && first.writable == NULL && reads(first.data, 1, MIB));
    CHECK(second.bytes == 1000 && reads(second.data, 2, 1000));
    CHECK(own.bytes == 100 && own.writable == own.data && reads(own.data, 3, 100));
    MISUSE(memsaver_attached_at(model, "third", &(memsaver_attached_range){MEMSAVER_ATTACHED_RANGE_INIT}),
           "nothing has the name \"third\"");
    const char* names[4];
    for (size_t i = 0; i < 4; ++i) OK(memsaver_attached_name(model, i, &names[i]));
    CHECK(strcmp(names[0], "first") == 0 && strcmp(names[1], "scales") == 0 && strcmp(names[2], "second") == 0);
    CHECK(names[3] == NULL);
    CHECK(NIL(attached_name, model, 0, NULL) && NIL(attached_at, model, "first", NULL) &&
          NIL(attached_at, model, NULL, NULL) && NIL(get_attached_info, model, NULL));
    OK(memsaver_attached_verify(model));
    CHECK(mprotect((void*)(uintptr_t)first.data, 64 << 10, PROT_READ | PROT_WRITE) == 0); // a reader that insists
    *(char*)(uintptr_t)first.data = 9;
    FAILS(MEMSAVER_PUBLICATION_DAMAGED, memsaver_attached_verify(model), "\"first\" in \"model@1\"");

    memsaver_attached* again = model;
    MISUSE(memsaver_attach(reader.share, "model", reader.saver, NULL, &again), "model@1");
    CHECK(again == NULL);
    const char* const tag = info.tag;
    memsaver_usage usage = {MEMSAVER_USAGE_INIT};
    OK(memsaver_get_usage(reader.saver, &tag, 1, &usage));
    memsaver_release_attached(model);
    CHECK(reads(second.data, 2, 1000)); // the tag stays
    OK(memsaver_withdraw(reader.share, "model"));
    FAILS(MEMSAVER_UNAVAILABLE, ATTACHING("model", NULL), "nothing is");
    leave(&reader);
}

// --- Failures ---

static void test_failures(void) {
    memsaver_share* share = NULL;
    FAILS(MEMSAVER_UNAVAILABLE, memsaver_join_share(HOST(), JOIN(), &share), "a device of this process alone");
    FAILS(MEMSAVER_UNAVAILABLE, memsaver_join_share(MACHINE(), JOIN(.folder = "/proc/none"), &share), "/proc/none");
    MISUSE(memsaver_join_share(MACHINE(), JOIN(.answer_within_ns = 1), &share), "answer_within");
    MISUSE(memsaver_join_share(MACHINE(), JOIN(.linger_ns = -1), &share), "linger");
    MISUSE(memsaver_join_share(MACHINE(), JOIN(.floor = 2, .ceiling = 1), &share), "ceiling");
    MISUSE(memsaver_join_share(MACHINE(), JOIN(.size = 3), &share), "memsaver_share_options");
    MISUSE(memsaver_join_share(MACHINE(.host_machine = "a/b"), NULL, &share), "a/b");
    CHECK(share == NULL);

    struct member member = join("engine", 0);
    memsaver_saver* other = NULL;
    memsaver_lending* lending = NULL;
    memsaver_attached* attached = NULL;
    char* text = NULL;
    OK(memsaver_create(HOST(), &other));
    MISUSE(memsaver_lend(member.share, other, &lending), "not on the driver of this share");
    MISUSE(memsaver_attach(member.share, "model", other, NULL, &attached), "not on the driver");
    memsaver_destroy(other);
    MISUSE(memsaver_join_share(MACHINE(.share = member.share), NULL, &share), "have a share already");
    const int nulls =
        NIL(join_share, MACHINE(), NULL, NULL) && NIL(get_members_json, NULL, &text) &&
        NIL(get_members_json, member.share, NULL) && NIL(lend, NULL, member.saver, &lending) &&
        NIL(lend, member.share, NULL, &lending) && NIL(lend, member.share, member.saver, NULL) &&
        NIL(publish, NULL, "model", member.saver, "weights", NULL, NULL) &&
        NIL(publish, member.share, NULL, member.saver, "weights", NULL, NULL) &&
        NIL(publish, member.share, "model", NULL, "weights", NULL, NULL) &&
        NIL(publish, member.share, "model", member.saver, NULL, NULL, NULL) && NIL(withdraw, NULL, "model") &&
        NIL(withdraw, member.share, NULL) && NIL(attach, NULL, "model", member.saver, NULL, &attached) &&
        NIL(attach, member.share, NULL, member.saver, NULL, &attached) &&
        NIL(attach, member.share, "model", NULL, NULL, &attached) && NIL(get_attached_info, NULL, NULL) &&
        NIL(attached_at, NULL, "first", NULL) && NIL(attached_name, NULL, 0, NULL) && NIL(attached_verify, NULL);
    CHECK(nulls);
    leave(&member);
    memsaver_leave_share(NULL);
    memsaver_release_attached(NULL);
    memsaver_end_lending(NULL);
}

static memsaver_attached* attached = NULL;
static memsaver_lending* lending = NULL;

static void use_inherited(void* context) {
    struct member* member = context;
    memsaver_saver* saver = NULL;
    char* json = NULL;
    MISUSE(memsaver_get_members_json(member->share, &json), "fork");
    MISUSE(memsaver_create(OPTIONS(.share = member->share), &saver), "fork");
    MISUSE(memsaver_attached_at(attached, "first", &(memsaver_attached_range){MEMSAVER_ATTACHED_RANGE_INIT}), "fork");
    memsaver_end_lending(lending);
    memsaver_release_attached(attached);
    leave(member);
}

/// A child of a process with a share is refused, and can release what it inherited.
static void test_fork(void) {
    struct member member = join("parent", 0);
    (void)publish(&member);
    OK(memsaver_attach(member.share, "model", member.saver, NULL, &attached));
    OK(memsaver_lend(member.share, member.saver, &lending));
    CHECK(lists(member.share, "\"lends\":true,\"published_bytes\":2097152,"));
    in_child("use of a parent's share", use_inherited, &member);
    const char* const tag = "model@1";
    OK(memsaver_drop(member.saver, &tag, 1));
    MISUSE(memsaver_attached_verify(attached), "was dropped");
    memsaver_end_lending(lending);
    CHECK(!lists(member.share, "\"lends\":true,"));
    memsaver_release_attached(attached);
    leave(&member);
}

int main(void) {
    if (mkdtemp(folder) == NULL) return 1;
    test_failures();
    test_a_model();
    test_fork();
    char command[100];
    snprintf(command, sizeof command, "rm -r %s", folder);
    CHECK(system(command) == 0);
    return failures != 0;
}
