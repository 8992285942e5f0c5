// Communicators during pauses, with a stub libnccl.so.2 (stub_nccl.cpp), whose path the build passes: the order of
// calls, the failure of each, a communicator in error, versions that are too old.
#include "memsaver/interop/nccl.hpp"
#include "stub_nccl.hpp"
#include "support/each_of.hpp"

namespace interop_nccl_test {
using namespace test;
using Calls = std::vector<std::string>;

/// Resets the stub and uses it in place of NCCL as long as it lives.
struct Stub {
    Stub() {
        ::setenv("MEMSAVER_NCCL", MEMSAVER_STUB_NCCL, 1);
        void* const library = ::dlopen(MEMSAVER_STUB_NCCL, RTLD_NOW);
        REQUIRE_MESSAGE(library != nullptr, ::dlerror());
        state_ = reinterpret_cast<StubNccl* (*)()>(::dlsym(library, "stub_nccl"))();
        *state_ = {};
    }
    ~Stub() {
        CHECK(state_->wrong == Calls{});
        ::unsetenv("MEMSAVER_NCCL");
    }

    StubNccl* operator->() const { return state_; }
    [[nodiscard]] Calls taken() const { return std::exchange(state_->calls, {}); }
    [[nodiscard]] static ncclComm* comm() { return reinterpret_cast<ncclComm*>(0x1000); }

private:
    StubNccl* state_ = nullptr;
};

struct OnNccl : OnMachine {
    const Stub stub{};
    MemorySaver<MachineDriver> saver{machine.driver};
    Registrations registrations{saver};
};

struct OnWeights : OnNccl {
    const Buffer<char> weights{saver.arena("weights", HostBackup{}), 4_MiB};
};

TEST_CASE_FIXTURE(OnNccl, "nccl: a pause deregisters, suspends and pauses; a resume does the reverse" * on_hosts) {
    int barriers = 0;
    Registrations with_barrier{saver, {.barrier = [&](const PauseEvent&) {
                                   barriers += 1;
                                   CHECK(stub->calls.empty());
                               }}};
    const Buffer<char> weights{saver.arena("weights", HostBackup{}, ArenaOptions{.single_handle = true}), 4_MiB};
    const Buffer<char> cache{saver.arena("cache"), 2_MiB};
    write_pattern(machine.driver, weights.data(), weights.size(), 3);
    NcclComm comm{with_barrier, Stub::comm(), {.who = "rollout", .tags = "weights"}};
    CHECK(comm.suspends());
    CHECK(comm.version() == 22907);
    NcclBuffer buffer = comm.buffer(weights.data(), 2_MiB);
    NcclWindow window = comm.window(weights.data() + 2_MiB, 2_MiB);
    ncclWindow_vidmem* const first = window.get();
    CHECK(first != nullptr);
    CHECK(stub.taken() == Calls{"register 2097152", "window 2097152 1"});

    saver.pause("cache"); // not one of its tags
    saver.resume("cache");
    CHECK(stub.taken().empty());
    for (int round = 1; round <= 3; ++round) {
        struct Seen {
            const MachineDriver& driver;
            std::vector<std::size_t> bytes{};
        } seen{machine.driver};
        stub->context = &seen;
        stub->on_call = [](const char*, void* context) {
            Seen& to = *static_cast<Seen*>(context);
            to.bytes.push_back(to.driver.handle_bytes());
        };
        saver.pause("weights");
        CHECK(barriers == round);
        CHECK(stub.taken() == Calls{"unwindow", "deregister", "suspend 1"});
        CHECK(comm.suspended());
        CHECK(window.get() == nullptr);
        CHECK_FALSE(buffer.registered());
        CHECK_THROWS_AS((void)comm.buffer(cache.data(), 4096), Misuse); // no call on a suspended communicator
        saver.resume("weights");
        CHECK(stub.taken() == Calls{"resume", "register 2097152", "window 2097152 1"});
        CHECK_FALSE(comm.suspended());
        CHECK(window.get() != nullptr);
        CHECK(window.get() != first);
        CHECK(seen.bytes.size() == 6);
        CHECK(std::all_of(seen.bytes.begin(), seen.bytes.end(), [](std::size_t b) { return b == 6_MiB; }));
        stub->on_call = nullptr;
    }
    CHECK(has_pattern(machine.driver, weights.data(), weights.size(), 3));
}

TEST_CASE_FIXTURE(OnNccl, "nccl: tags with windows are paused and resumed one after the other, in every order") {
    {
        const NcclComm comm{registrations, Stub::comm()};
        saver.pause(); // there are no tags yet
        saver.resume();
        CHECK(stub.taken() == Calls{"suspend 1", "resume"});
    }
    const Buffer<char> weights{saver.arena("weights", HostBackup{}), 4_MiB};
    const Buffer<char> cache{saver.arena("cache", HostBackup{}), 2_MiB};
    const std::string plus_weights = "window 4194304 1";
    const std::string plus_cache = "register 2097152";
    SUBCASE("the communicator is suspended with all tags") {
        NcclComm comm{registrations, Stub::comm()};
        const NcclWindow one = comm.window(weights.data(), weights.size());
        const NcclBuffer two = comm.buffer(cache.data(), cache.size());
        (void)stub.taken();
        for (const bool weights_first : {true, false}) {
            saver.pause("weights");
            CHECK(stub.taken() == Calls{"deregister", "unwindow", "suspend 1"});
            CHECK_FALSE(two.registered());
            check_says<Misuse>("is not registered", [&] { (void)comm.buffer(cache.data(), 4096); });
            saver.pause("cache");
            CHECK(stub.taken().empty());
            CHECK(machine.driver.handle_bytes() == 0);
            saver.resume(weights_first ? "weights" : "cache");
            CHECK(stub.taken() == Calls{"resume", weights_first ? plus_weights : plus_cache});
            CHECK(one.registered() == weights_first);
            CHECK((one.get() != nullptr) == weights_first);
            saver.resume(weights_first ? "cache" : "weights");
            CHECK(stub.taken() == Calls{weights_first ? plus_cache : plus_weights});
        }
        saver.pause("weights");
        saver.resume("weights"); // the other tag was not paused
        CHECK(stub.taken() == Calls{"deregister", "unwindow", "suspend 1", "resume", plus_weights, plus_cache});
        stub->fails = {{"suspend", 3}};
        CHECK_THROWS_AS(saver.pause("weights"), DriverError);
        stub->fails.clear();
        CHECK(two.registered());
        CHECK(one.registered());
    }
    SUBCASE("the communicator is suspended with one of them") {
        NcclComm comm{registrations, Stub::comm(), {.tags = "weights"}};
        const NcclWindow one = comm.window(weights.data(), weights.size());
        NcclBuffer two = comm.buffer(cache.data(), cache.size());
        (void)stub.taken();
        saver.pause("cache");
        CHECK(stub.taken() == Calls{"deregister"});
        saver.pause("weights");
        CHECK(stub.taken() == Calls{"unwindow", "suspend 1"});
        saver.resume("cache"); // waits for the communicator
        CHECK(stub.taken().empty());
        saver.resume("weights");
        CHECK(stub.taken() == Calls{"resume", plus_weights, plus_cache});
        saver.pause("weights");
        (void)stub.taken();
        two.end(); // makes no call on a suspended communicator
        CHECK(stub.taken().empty());
        saver.resume("weights");
        CHECK(stub.taken() == Calls{"resume", plus_weights});
    }
    SUBCASE("it is never suspended: memory that stays is left alone") {
        NcclComm comm{registrations, Stub::comm(), {.suspend = NcclSuspend::never}};
        const NcclWindow one = comm.window(weights.data(), weights.size());
        const NcclBuffer two = comm.buffer(cache.data(), cache.size());
        (void)stub.taken();
        saver.pause("weights");
        saver.pause("cache");
        saver.resume();
        CHECK(stub.taken() == Calls{"unwindow", "deregister", plus_weights, plus_cache});
    }
}

TEST_CASE("nccl: NCCL is called with its device current, whatever thread pauses and resumes") {
    struct WithContext : DeviceAround {
        using DeviceAround::DeviceAround;
        Status with_context(detail::FunctionRef<void()> work) noexcept override {
            if (std::exchange(fails, false)) return {StatusKind::other, 2, "injected"};
            inside() += 1;
            work();
            inside() -= 1;
            return {};
        }
        static int& inside() {
            thread_local int depth = 0;
            return depth;
        }
        bool fails = false;
    };
    const Stub stub;
    const test::HostWith<WithContext> driver{64_MiB};
    MemorySaver saver{driver};
    Registrations registrations{saver};
    const Buffer<char> weights{saver.arena("weights", HostBackup{}), 4_MiB};
    NcclComm comm{registrations, Stub::comm(), {.tags = "weights"}};
    std::vector<int> inside;
    stub->context = &inside;
    stub->on_call = [](const char*, void* context) {
        static_cast<std::vector<int>*>(context)->push_back(WithContext::inside());
    };
    NcclBuffer buffer = comm.buffer(weights.data(), 2_MiB);
    std::thread{[&] { pause_and_resume(saver, "weights"); }}.join();
    buffer.end();
    CHECK(inside == std::vector<int>(6, 1)); // register; deregister, suspend, resume, register; deregister
    stub->on_call = nullptr;
    // A call that was not made, because its device could not be made current, is made by the next pause.
    driver.changed().fails = true;
    CHECK_THROWS_AS((void)saver.pause("weights"), DriverError);
    CHECK_FALSE(comm.suspended());
    (void)saver.pause("weights");
    CHECK(stub->suspended);
    CHECK(comm.suspended());
    (void)saver.resume("weights");
    CHECK_FALSE(stub->suspended);
    CHECK(stub->wrong.empty());
}

TEST_CASE_FIXTURE(OnWeights,
                  "nccl: each call fails: a pause then changes nothing; a resume reports it and can be repeated") {
    NcclComm comm{registrations, Stub::comm(), {.who = "trainer"}};
    NcclBuffer buffer = comm.buffer(weights.data(), 2_MiB);
    NcclWindow window = comm.window(weights.data() + 2_MiB, 2_MiB);
    const std::set<std::string> resuming{"resume", "register", "window"};
    for (const char* call : {"unwindow", "deregister", "suspend", "ask", "resume", "register", "window"}) {
        CAPTURE(call);
        const bool resumes = resuming.contains(call);
        if (resumes) saver.pause();
        stub->fails = {{call, 3}};
        const std::string text = text_of<DriverError>([&] { resumes ? saver.resume() : saver.pause(); });
        stub->fails.clear();
        for (const char* const part : {"\"trainer\"", "stub error (3)", "what the stub said last"})
            CHECK_MESSAGE(contains(text, part), text);
        CHECK(machine.driver.handle_bytes() == 4_MiB); // a resume remains in effect
        if (resumes) CHECK_FALSE((window.registered() && buffer.registered()));
        registrations.renew(); // including registrations that NCCL refused
        CHECK(buffer.registered());
        CHECK(window.registered());
        CHECK_FALSE(comm.suspended());
    }
    stub->fails = {{"register", 4}};
    CHECK_THROWS_AS((void)comm.buffer(weights.data(), 4096), DriverError);
}

TEST_CASE_FIXTURE(OnWeights, "nccl: a pause that fails for its own reasons wakes the communicator again") {
    NcclComm comm{registrations, Stub::comm()};
    NcclWindow window = comm.window(weights.data(), 4_MiB);
    (void)stub.taken();
    machine.driver.fail({.call = Call::copy_to_host, .lasting = Lasting::onwards});
    CHECK_THROWS_AS(saver.pause(), Error);
    machine.driver.heal();
    CHECK(stub.taken() == Calls{"unwindow", "suspend 1", "resume", "window 4194304 1"});
    CHECK(window.registered());
    Registration pinned = registrations.add(weights.data(), 256, {.who = "mlx5_0"});
    CHECK_THROWS_AS(saver.pause(), Misuse); // memory registered by another owner: NCCL is not called
    CHECK(stub.taken().empty());
}

TEST_CASE_FIXTURE(OnWeights, "nccl: a communicator in error is named, and nothing is paused until it is removed") {
    {
        NcclComm comm{registrations, Stub::comm(), {.who = "group 7"}};
        NcclWindow window = comm.window(weights.data(), 4_MiB);
        NcclComm bare{registrations, Stub::comm(), {.who = "bare"}};
        (void)stub.taken();
        stub->async_error = 6;
        const std::string text = text_of<DriverError>([&] { saver.pause(); });
        CHECK(contains(text, "\"bare\"")); // the latest is called first
        CHECK(contains(text, "remote process exited (6)"));
        CHECK(contains(text, "abandon"));
        bare.abandon();
        CHECK(contains(text_of<DriverError>([&] { saver.pause(); }), "\"group 7\""));
        CHECK(stub.taken().empty());
        CHECK(machine.driver.handle_bytes() == 4_MiB);
        comm.abandon();
        saver.pause();
        CHECK(machine.driver.handle_bytes() == 0);
        saver.resume();
        CHECK(stub.taken().empty());
    }
    CHECK(stub.taken().empty());
}

TEST_CASE_FIXTURE(OnWeights, "nccl: nonblocking communicators are waited for until the timeout") {
    NcclComm comm{registrations, Stub::comm(), {.timeout = std::chrono::seconds{1}}};
    stub->polls = 5;
    saver.pause();
    CHECK(stub->polls == 0);
    stub->polls = 3;
    saver.resume();
    CHECK_FALSE(comm.suspended());
    stub->polls = 1'000'000;
    CHECK_THROWS_AS(saver.pause(), NotIdle);
    stub->polls = 0;
    CHECK(machine.driver.handle_bytes() == 4_MiB);
    pause_and_resume(saver);
}

/// Makes the calls that begin with a word outlast any timeout, until it ends: then they complete.
struct Slow {
    Slow(const Stub& stub, std::string word) : stub_{stub}, word_{std::move(word)} {
        stub->context = this;
        stub->on_call = [](const char* call, void* context) {
            const Slow& slow = *static_cast<Slow*>(context);
            if (std::string{call}.starts_with(slow.word_)) slow.stub_->polls = 1'000'000;
        };
    }
    ~Slow() {
        stub_->on_call = nullptr;
        stub_->polls = 0;
    }

private:
    const Stub& stub_;
    std::string word_;
};

TEST_CASE_FIXTURE(OnWeights,
                  "nccl: a call that outlasts its timeout and completes later is neither made again nor forgotten") {
    const std::string late = each_of({"window", "unwindow", "suspend", "resume"});
    NcclComm comm{registrations, Stub::comm(), {.timeout = std::chrono::milliseconds{200}}};
    NcclWindow window = comm.window(weights.data(), 4_MiB);
    const bool pausing = late == "unwindow" || late == "suspend";
    if (!pausing) saver.pause();
    {
        const Slow slow{stub, late};
        CHECK_THROWS_AS((pausing ? saver.pause() : saver.resume()), NotIdle);
    }
    CHECK(row_of(saver, "weights").state == "active");
    (void)stub.taken();
    if (late != "unwindow") {
        registrations.renew();
        for (const std::string& call : stub.taken()) CHECK((pausing || !call.starts_with(late)));
        CHECK_FALSE(comm.suspended());
        CHECK_FALSE(stub->suspended);
        CHECK(window.get() != nullptr);
    }
    saver.pause();
    CHECK(stub->suspended);
    saver.resume();
    CHECK_FALSE(stub->suspended);
    CHECK(window.registered());
}

TEST_CASE_FIXTURE(OnWeights,
                  "nccl: what is registered late, and the saver does not know of, is undone before a pause") {
    const NcclSuspend suspend = each_of({NcclSuspend::where_possible, NcclSuspend::never});
    NcclComm comm{
        registrations, Stub::comm(), {.tags = "weights", .suspend = suspend, .timeout = std::chrono::milliseconds{5}}};
    {
        const Slow slow{stub, "register"};
        CHECK_THROWS_AS((void)comm.buffer(weights.data(), 4_MiB), NotIdle);
    }
    (void)stub.taken();
    saver.pause();
    const Calls made = stub.taken();
    REQUIRE_FALSE(made.empty());
    CHECK(made.front().starts_with("deregister"));
    saver.resume();
}

TEST_CASE_FIXTURE(OnTold, "nccl: a version too old to suspend keeps its memory, and its registrations are renewed") {
    const Stub stub;
    Registrations registrations{saver};
    const Buffer<char> weights{saver.arena("weights", HostBackup{}), 4_MiB};
    stub->version = 22807;
    check_says<Unavailable>("2.28.7", [&] {
        (void)NcclComm{registrations, Stub::comm(), {.suspend = NcclSuspend::required}};
    });
    NcclComm comm{registrations, Stub::comm(), {.who = "old"}};
    CHECK_FALSE(comm.suspends());
    const std::vector<std::string> texts = told.texts(EventKind::fell_back);
    REQUIRE(texts.size() == 1);
    CHECK(contains(texts[0], "2.29.7"));
    CHECK(contains(texts[0], "\"old\""));
    NcclWindow window = comm.window(weights.data(), 4_MiB);
    pause_and_resume(saver);
    CHECK(stub.taken() == Calls{"window 4194304 1", "unwindow", "window 4194304 1"});
    stub->version = 23203;
    NcclComm never{registrations, Stub::comm(), {.suspend = NcclSuspend::never}};
    CHECK_FALSE(never.suspends());
    CHECK(told.of(EventKind::fell_back).size() == 1);
}

TEST_CASE_FIXTURE(OnNccl, "nccl: missing, or not NCCL, or no communicator") {
    const auto text = [&] { return text_of<Unavailable>([&] { const NcclComm none{registrations, Stub::comm()}; }); };
    ::setenv("MEMSAVER_NCCL", "/nowhere/libnccl.so.2", 1);
    CHECK(contains(text(), "/nowhere/libnccl.so.2"));
    CHECK(contains(text(), "MEMSAVER_NCCL"));
    ::setenv("MEMSAVER_NCCL", "libdl.so.2", 1);
    CHECK(contains(text(), "is not NCCL"));
    CHECK_THROWS_AS((NcclComm{registrations, nullptr}), Misuse);
    pause_and_resume(saver);
}
} // namespace interop_nccl_test
