// What no member sends: noise and damaged messages, with and without descriptors, to a leader, a member and a keeper.
// Nobody ends or hangs, and no descriptor stays open.
#include "memsaver/share/share.hpp"
#include "share/share_support.hpp"
#include "support/machines.hpp"

#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/uio.h>

namespace share_message_test {
using namespace test;
using detail::ShareFd;
using detail::ShareMessage;
using namespace process_test;
using namespace share_support;
using Kind = ShareMessage::Kind;

/// Makes what no member sends, and sends it.
struct Noise {
    /// `process`: a descriptor of some other process.
    explicit Noise(int process) : process_{process} {}

    std::uint64_t operator()(std::uint64_t end) { return engine_() % end; }

    /// A number that somebody may not have thought of.
    std::uint64_t number() {
        static constexpr std::array<std::uint64_t, 10> odd{
            0, 1, page, 20 * page, 64 * page, ShareMessage::most_bytes, std::uint64_t{1} << 63U, ~std::uint64_t{0},
            2, 3};
        return (*this)(8) == 0 ? engine_() : odd[(*this)(odd.size())];
    }

    ShareMessage message() {
        ShareMessage made;
        made.kind = static_cast<Kind>((*this)(static_cast<std::uint64_t>(Kind::end) + 1));
        made.id = (*this)(8);
        made.bytes = number();
        made.within = static_cast<std::int64_t>((*this)(2) == 0 ? number() : 0);
        made.as_left = static_cast<std::uint32_t>((*this)(3));
        made.facts.held = number();
        made.facts.granted = number();
        made.facts.floor = number();
        made.facts.pages = number();
        made.facts.lends = static_cast<std::uint32_t>((*this)(2));
        made.facts.trusted = (*this)(2);
        made.facts.priority = static_cast<std::int32_t>((*this)(5)) - 2;
        made.facts.name[0] = 'n';
        return made;
    }

    /// Sends bytes: a message's, a damaged one's, others, more or fewer than one has.
    void send(int socket, const ShareMessage& message) {
        std::vector<char> bytes(sizeof message + 40);
        std::memcpy(bytes.data(), &message, sizeof message);
        std::size_t count = sizeof message;
        switch ((*this)(8)) {
        case 0: count = (*this)(bytes.size()); break;
        case 1:
            for (char& each : bytes) each = static_cast<char>(engine_());
            break;
        case 2: // after the mark, so that it is not rejected at once
            for (int i = 0; i < 4; ++i) bytes[8 + (*this)(sizeof message - 8)] = static_cast<char>(engine_());
            break;
        default: break;
        }
        send_bytes(socket, bytes.data(), count);
    }

    void send_bytes(int socket, char* bytes, std::size_t count) {
        std::vector<int> sent;
        std::vector<ShareFd> mine;
        const std::size_t many = (*this)(3) == 0 ? (*this)(5) : 1;
        for (std::size_t i = 0; i < many; ++i) {
            switch ((*this)(6)) {
            case 0: mine.push_back(owned(::eventfd(1, EFD_CLOEXEC))); break;
            case 1: mine.push_back(owned(::memfd_create("noise", MFD_CLOEXEC))); break;
            case 2: mine.push_back(owned(::dup(STDERR_FILENO))); break;
            default: mine.push_back(owned(::dup(process_))); break;
            }
            sent.push_back(mine.back().get());
        }
        (void)detail::send_with_descriptors(socket, {bytes, count}, sent.data(), sent.size());
    }

private:
    std::mt19937_64 engine_{7};
    int process_;
};

constexpr int rounds = test::sanitized ? 200 : 800;

TEST_CASE_FIXTURE(OnPlace, "share messages: a leader survives noise, and serves its members afterwards") {
    Child other{[] { wait_to_be_killed(); }};
    const std::size_t before = descriptors().size();
    {
        const ShareFd process = owned(static_cast<int>(::syscall(SYS_pidfd_open, other.pid(), 0)));
        const Share share = place.join({.name = "leader"});
        const detail::ShareFolder folder{"", place.folder};
        Noise noise{process.get()};
        const std::size_t quiet = descriptors().size();
        for (int round = 0; round < rounds; ++round) {
            CAPTURE(round);
            ShareFd link;
            REQUIRE(
                soon([&] { return static_cast<bool>(link = folder.connect()); })); // a busy host's queue may be full
            if (noise(3) != 0) {                                                   // becomes a member first
                ShareMessage hello;
                if (noise(2) == 0) hello.facts = noise.message().facts;
                (void)detail::send_message(link.get(), hello, noise(4) == 0 ? -1 : process.get());
            }
            for (std::uint64_t left = noise(12); left != 0; --left) noise.send(link.get(), noise.message());
            if (noise(4) == 0) (void)::usleep(200); // it answers
        }
        CHECK(soon([&] { return share.members().size() == 1; }));
        PageHandle pages;
        CHECK(soon([&] { return share.driver().create(60 * page, pages).ok(); }));
        CHECK(share.driver().release(pages).ok());
        // What a member's process has is waited for as long as it lives; with it all are closed.
        other.kill_now();
        CHECK(soon([&] { return descriptors().size() == quiet; }));
    }
    CHECK(descriptors().size() == before);
}

TEST_CASE_FIXTURE(OnPlace, "share messages: a member survives a leader that sends noise, and leads after it") {
    const std::size_t before = descriptors().size();
    {
        std::optional<detail::ShareFolder> folder{std::in_place, "", place.folder};
        const ShareFd process = owned(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
        Noise noise{process.get()};
        ShareFd lock = folder->lead();
        ShareFd listener = folder->listen();
        REQUIRE(listener);
        const Share share = place.join({.name = "member", .answer_within = 5ms});
        std::atomic<bool> over{false};
        std::thread calls{[&] {
            while (!over) {
                PageHandle pages;
                if (share.driver().create(20 * page, pages).ok()) (void)share.driver().release(pages);
                (void)share.driver().ask_for_room(30 * page, 1'000'000);
                (void)share.members();
            }
        }};
        const Lending lending = [&] {
            MemorySaver<> saver{share.driver()};
            return share.lend(saver);
        }();
        for (int round = 0; round < rounds / 4; ++round) {
            const ShareFd link = accepted(listener);
            for (std::uint64_t left = noise(30); left != 0; --left) {
                ShareMessage asked; // answers what it is asked, wrongly
                ShareFd descriptor;
                ShareMessage answer = noise.message();
                if (detail::receive_message(link.get(), asked, descriptor) == detail::ShareReceived::message)
                    answer.id = asked.id;
                if (noise(2) == 0) answer.kind = noise(2) == 0 ? Kind::grant : Kind::page;
                noise.send(link.get(), answer);
                if (noise(4) == 0) (void)::usleep(100);
            }
        }
        listener.reset();
        lock.reset();
        PageHandle pages;
        over = true;
        calls.join();
        CHECK(soon([&] { return share.members().size() == 1 && share.driver().create(60 * page, pages).ok(); }));
        CHECK(soon([&] { return share.members().at(0).held_bytes == 60 * page; })); // what was passed goes back
        CHECK(share.driver().release(pages).ok());
        CHECK(free_bytes(place) == 64 * page);
    }
    CHECK(descriptors().size() == before);
}

TEST_CASE_FIXTURE(InFolder, "share messages: a member asks again if its other threads have used what it was granted") {
    const ShareFd lock = folder.lead();
    const ShareFd listener = folder.listen();
    std::thread leads{[&] {
        const ShareFd link = accepted(listener, SOCK_CLOEXEC);
        ShareMessage said;
        ShareFd process;
        for (int wants = 0; wants < 2;) {
            const bool heard = soon(
                [&] { return detail::receive_message(link.get(), said, process) == detail::ShareReceived::message; });
            CHECK(heard);
            if (!heard) return;
            if (said.kind == Kind::hello) (void)detail::send_message(link.get(), {.kind = Kind::welcome});
            if (said.kind != Kind::want) continue;
            CHECK(said.bytes == 5 * page);
            const std::uint64_t left = wants++ == 0 ? 2 * page : 5 * page; // as if another thread had used the others
            (void)detail::send_message(link.get(), {.kind = Kind::grant, .id = said.id, .bytes = left});
        }
    }};
    const Share share = place.join({});
    PageHandle pages;
    CHECK(share.driver().create(5 * page, pages).ok());
    CHECK(share.driver().release(pages).ok());
    leads.join();
}

TEST_CASE("share messages: what is of another version or size, or of a number that no machine has, is noise") {
    for (const auto& spoil :
         {+[](ShareMessage& m) { m.version += 1; }, +[](ShareMessage& m) { m.size += 1; },
          +[](ShareMessage& m) { m.mark[0] = 'M'; }, +[](ShareMessage& m) { m.facts.name.fill('x'); },
          +[](ShareMessage& m) { m.kind = static_cast<Kind>(1000); },
          +[](ShareMessage& m) { m.bytes = ShareMessage::most_bytes + 1; },
          +[](ShareMessage& m) { m.facts.held = ShareMessage::most_bytes + 1; },
          +[](ShareMessage& m) { m.facts.granted = ShareMessage::most_bytes + 1; }}) {
        ShareMessage message;
        message.bytes = message.facts.held = message.facts.granted = ShareMessage::most_bytes;
        CHECK(message.sound(sizeof message));
        CHECK_FALSE(message.sound(sizeof message - 1));
        spoil(message);
        CHECK_FALSE(message.sound(sizeof message));
    }
}

TEST_CASE_FIXTURE(InFolder,
                  "share messages: members of another version are told so, and those who are there go on alone") {
    ShareFd lock = folder.lead();
    ShareFd listener = folder.listen();
    REQUIRE(listener);
    const ShareFd process = owned(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
    std::atomic<bool> over{false};
    std::atomic<std::uint32_t> version{ShareMessage::this_version};
    std::atomic<int> turned_away{0};
    std::thread leader{[&] { // closes connections of other versions, and that is all it can do
        for (ShareFd kept; !over; (void)::usleep(500)) {
            ShareFd link = owned(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
            if (version != ShareMessage::this_version) kept.reset();
            if (!link) continue;
            (void)detail::send_message(link.get(), {.version = version, .kind = Kind::welcome}, process.get());
            if (version == ShareMessage::this_version)
                kept = std::move(link);
            else
                ++turned_away;
        }
    }};
    const Share share = place.join({.name = "there", .answer_within = 50ms});
    version += 1;
    PageHandle pages;
    CHECK(share.driver().create(20 * page, pages).ok());
    CHECK(share.driver().release(pages).ok());
    std::this_thread::sleep_for(300ms);
    CHECK(turned_away < 60); // it tries now and again, not all the time
    test::check_says<Unavailable>("use another version of memsaver", [&] { (void)place.join({}); });
    over = true;
    leader.join();
    listener.reset();
    lock.reset();
    CHECK(soon([&] { return place.join({}).members().size() == 2; }));
}

TEST_CASE_FIXTURE(OnPlace, "share messages: a keeper survives noise, and keeps what it has") {
    const std::size_t before = descriptors().size();
    {
        const detail::ShareFolder folder{"", place.folder};
        detail::Keeper keeper{folder, 200ms, true};
        const auto made = publication_of("model", 5);
        made->descriptors.push_back(owned(::memfd_create("manifest", MFD_CLOEXEC)));
        made->facts.descriptors = 1;
        keeper.keep(made);
        Noise noise{STDERR_FILENO};
        const std::string name = folder.names("keeper").at(0);
        constexpr std::size_t size = 248; // of a message
        for (int round = 0; round < rounds / 2; ++round) {
            const ShareFd link = folder.connect(name.c_str());
            if (!link) { // it has not caught up with those before
                (void)::usleep(1000);
                continue;
            }
            for (std::uint64_t left = 1 + noise(3); left != 0; --left) {
                std::array<char, size> bytes{'m', 'e', 'm', 'k', 'e', 'e', 'p', '1'};
                const std::array<std::uint32_t, 2> head{static_cast<std::uint32_t>(noise(8)),
                                                        static_cast<std::uint32_t>(noise(4))};
                std::memcpy(&bytes[8], head.data(), sizeof head);
                for (std::size_t at = size - 40; at < size; at += 8) {
                    const std::uint64_t value = noise.number();
                    std::memcpy(&bytes[at], &value, sizeof value);
                }
                for (std::uint64_t i = noise(3); i != 0; --i)
                    bytes[16 + noise(size - 16)] = static_cast<char>(noise(256));
                noise.send_bytes(link.get(), bytes.data(), noise(8) == 0 ? noise(size) : size);
            }
        }
        const detail::Keeper asks{folder, 2s};
        CHECK(soon([&] {
            for (const detail::PublicationFacts& each : asks.list())
                if (each.id == 5) return true;
            return false;
        }));
        CHECK(asks.get(5) != nullptr);
    }
    CHECK(descriptors().size() == before);
}
} // namespace share_message_test
