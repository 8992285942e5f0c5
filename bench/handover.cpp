// Memory that passes between two processes which alternate: what it takes from the pause of one to the end of the
// other's resume, beside the raw calls of the driver, and how fast copies are right afterwards. On the first GPU, or
// without one on a simulated device. Returns 0 if every byte was as it must be.
//
//   handover [GIB...]     default: 8 and 32 on a GPU, 1 without one; in handles of 1 GiB
//
// The raw calls: export, unmap, send; receive, import, map, access. For members that do not trust each other, a fill
// too.
#include "processes.hpp"

#include <cstring>

namespace {

using namespace processes;

constexpr std::size_t handle = 1_GiB;
constexpr int rounds = 5;

/// One of the two, which does what the parent says.
class Party {
public:
    Party(const Place& place, std::size_t bytes, bool trusted, bool linger, const char* name, int peer)
        : device_{place.device()}, peer_{peer}, bytes_{bytes}, share_{device_,
                                                                      {.name = name,
                                                                       .trusted = trusted,
                                                                       .linger = std::chrono::seconds{linger ? 1 : 0},
                                                                       .folder = place.folder}},
          saver_{share_.driver()}, handles_(bytes / handle) {
        // `evictable`: the other one may have it as soon as it asks.
        Arena arena = saver_.arena("memory", Discard{}, {.evictable = true});
        for (std::size_t i = 0; i < handles_.size(); ++i) blocks_.push_back(arena.allocate(handle));
        saver_.pause();
        check(device_.reserve(bytes, 2_MiB, raw_), "reserve");
        host_ = pinned(device_, copied());
        std::memset(host_, 1, copied());
    }

    void obey(int orders) {
        for (;;) {
            const auto order = get<Command>(orders);
            Answer answer;
            answer.began = milliseconds();
            switch (order.what) {
            case 'p': saver_.pause(); break;
            case 'r': saver_.resume("memory", {.room_within = std::chrono::seconds{60}}); break;
            case 'f': // marks its bytes
                for (void* each : blocks_)
                    fill(device_, reinterpret_cast<Address>(each), static_cast<unsigned char>(order.value), handle);
                break;
            case 'c': copy(); break;
            case 'd': answer.value = part_that_is(order.value); break;
            case 'l': lending_ = order.value != 0 ? share_.lend(saver_) : Lending{}; break;
            case 'k': hold_all_but(device_, static_cast<std::size_t>(order.value) * 1_MiB); break;
            case 'C': create(); break;
            case 'G': give(order.value != 0); break;
            case 'T': take(); break;
            case 'U': release(); break;
            default: return;
            }
            answer.ended = milliseconds();
            put(orders, answer);
        }
    }

private:
    [[nodiscard]] std::size_t copied() const { return std::min(bytes_, 4_GiB); }

    void copy() {
        StreamRef stream;
        check(device_.open_stream(stream), "open a stream");
        for (std::size_t done = 0; done < copied(); done += handle) // a block each
            check(device_.copy_to_device(reinterpret_cast<Address>(blocks_[done / handle]),
                                         static_cast<char*>(host_) + done, handle, stream),
                  "copy");
        check(device_.drain(), "drain");
        check(device_.close_stream(stream), "close a stream");
    }

    /// The part of its memory, sampled, that has this value.
    double part_that_is(int value) {
        constexpr std::size_t sample = 64_KiB;
        StreamRef stream;
        check(device_.open_stream(stream), "open a stream");
        std::size_t same = 0;
        std::size_t all = 0;
        for (void* each : blocks_)
            for (const std::size_t at : {std::size_t{0}, handle / 2, handle - sample}) {
                check(device_.copy_to_host(host_, reinterpret_cast<Address>(each) + at, sample, stream), "copy");
                check(device_.drain(), "drain");
                const auto* const bytes = static_cast<const unsigned char*>(host_);
                same += static_cast<std::size_t>(std::count(bytes, bytes + sample, static_cast<unsigned char>(value)));
                all += sample;
            }
        check(device_.close_stream(stream), "close a stream");
        return static_cast<double>(same) / static_cast<double>(all);
    }

    // --- the raw calls ---

    void create() {
        for (std::size_t i = 0; i < handles_.size(); ++i) {
            check(device_.create_shared(handle, handles_[i]), "create");
            check(device_.map(raw_ + i * handle, handle, handles_[i]), "map");
        }
        check(device_.allow_access(raw_, bytes_, Rights::read_write), "allow access");
        fill(device_, raw_, 5, bytes_);
    }
    void give(bool clear) {
        detail::Vector<detail::ShareFd> exported;
        for (const PageHandle each : handles_) {
            exported.push_back(detail::ShareFd::exported([&] {
                int descriptor = -1;
                check(device_.export_pages(each, descriptor), "export");
                return descriptor;
            }));
        }
        if (clear) fill(device_, raw_, 0, bytes_);
        check(device_.unmap(raw_, bytes_), "unmap");
        for (const detail::ShareFd& each : exported)
            if (!detail::send_message(peer_, {}, each.get())) std::exit(1);
    }
    void take() {
        detail::Vector<detail::ShareFd> received;
        while (received.size() < handles_.size()) {
            detail::ShareMessage message;
            detail::ShareFd descriptor;
            if (detail::receive_message(peer_, message, descriptor) == detail::ShareReceived::message)
                received.push_back(std::move(descriptor));
        }
        for (std::size_t i = 0; i < handles_.size(); ++i) {
            check(device_.import_pages(received[i].get(), handles_[i]), "import");
            check(device_.map(raw_ + i * handle, handle, handles_[i]), "map");
        }
        check(device_.allow_access(raw_, bytes_, Rights::read_write), "allow access");
        for (std::size_t i = 0; i < handles_.size(); ++i) received[i].reset();
        mapped_ = true;
    }
    void release() {
        if (mapped_) check(device_.unmap(raw_, bytes_), "unmap");
        mapped_ = false;
        for (const PageHandle each : handles_) check(device_.release(each), "release");
    }

    AnyDriver device_;
    int peer_;
    std::size_t bytes_;
    Share share_;
    MemorySaver<> saver_;
    Lending lending_;
    std::vector<void*> blocks_;
    std::vector<PageHandle> handles_;
    Address raw_ = 0;
    bool mapped_ = false;
    void* host_ = nullptr;
};

/// `linger`: only what two do that take turns, whose pages linger.
bool measure(std::size_t gib, bool trusted, bool linger) {
    const std::size_t bytes = gib * handle;
    const Place place{bytes + bytes / 2};
    Wire to[2];
    int peers[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, peers) != 0) return false;
    pid_t child[2];
    const auto tell = [&](int who, char what, int value = 0) { put(to[who].ends[0], Command{what, value}); };
    const auto heard = [&](int who) { return get<Answer>(to[who].ends[0]); };
    const auto order = [&](int who, char what, int value = 0) {
        tell(who, what, value);
        return heard(who);
    };
    const auto rest = [] { (void)::usleep(1'500'000); }; // the device clears what was released
    for (int who = 0; who < 2; ++who) {
        child[who] = start([&] {
            Party party{place, bytes, trusted, linger, who == 0 ? "trainer" : "rollout", peers[who]};
            party.obey(to[who].ends[1]);
        });
        (void)order(who, 'l', 0); // it is there
    }
    std::vector<double> raw, own, asked, after, quiet, turns, after_turns;
    rest(); // what lingers from the start is gone
    for (int round = 0; round < rounds; ++round) {
        (void)order(0, 'C');
        const Answer given = order(0, 'G', trusted ? 0 : 1);
        const Answer got = order(1, 'T');
        raw.push_back((given.ended - given.began) + (got.ended - got.began));
        (void)order(0, 'U');
        (void)order(1, 'U');
        rest();
    }
    (void)order(0, 'r');
    (void)order(0, 'k', static_cast<int>(handle / 2 / 1_MiB)); // the rest of the device: two do not fit
    rest();
    bool right = true;
    const auto pass = [&](int from, bool by_pause) {
        const int other = 1 - from;
        (void)order(from, 'f', 100 + from);
        double began = 0;
        if (by_pause) {
            tell(other, 'r');
            (void)::usleep(75'000); // it waits
            began = order(from, 'p').began;
        } else {
            (void)order(from, 'l', 1);
            tell(other, 'r');
        }
        const Answer answer = heard(other);
        (by_pause ? own : asked).push_back(answer.ended - (by_pause ? began : answer.began));
        const Answer copied = by_pause ? order(other, 'c') : Answer{};
        // What was passed has the giver's bytes, or has been cleared; the first part has been copied over.
        right = right && (by_pause || order(other, 'd', trusted ? 100 + from : 0).value == 1);
        if (by_pause) {
            after.push_back(copied.ended - copied.began);
            (void)::usleep(300'000);
            const Answer again = order(other, 'c');
            quiet.push_back(again.ended - again.began);
        } else {
            (void)order(from, 'l', 0);
        }
    };
    const auto in_turn = [&](int from) { // nobody waits when it pauses
        (void)order(from, 'f', 100 + from);
        const Answer paused = order(from, 'p');
        const Answer resumed = order(1 - from, 'r');
        turns.push_back((paused.ended - paused.began) + (resumed.ended - resumed.began));
        const Answer copied = order(1 - from, 'c');
        after_turns.push_back(copied.ended - copied.began);
        (void)::usleep(300'000);
        const Answer again = order(1 - from, 'c');
        quiet.push_back(again.ended - again.began);
    };
    for (int round = 0; round < rounds && !linger; ++round) pass(round % 2, true);
    for (int round = 0; round < rounds && !linger; ++round) pass((rounds + round) % 2, false);
    for (int round = 0; round < rounds; ++round) in_turn(round % 2);
    std::printf("%zu GiB, %s, in turns%s: %.2f ms, ratio %.2f; 4 GiB in right after %.2f of a quiet copy\n", gib,
                trusted ? "trusted" : "cleared", linger ? ", lingering" : "", median(turns),
                median(turns) / median(raw), median(after_turns) / median(quiet));
    if (!linger)
        std::printf(
            "%zu GiB, %s: raw calls %.2f ms; pause to resume %.2f ms, ratio %.2f; asked for %.2f ms, ratio %.2f; "
            "4 GiB in right after %.2f of a quiet copy%s\n",
            gib, trusted ? "trusted" : "cleared", median(raw), median(own), median(own) / median(raw), median(asked),
            median(asked) / median(raw), median(after) / median(quiet), right ? "" : "; WRONG BYTES");
    for (int who = 0; who < 2; ++who) {
        tell(who, 'q');
        int status = 0;
        (void)::waitpid(child[who], &status, 0);
        right = right && status == 0;
    }
    return right;
}

} // namespace

int main(int count, char** arguments) {
    std::vector<std::size_t> sizes;
    for (int i = 1; i < count; ++i) sizes.push_back(std::strtoul(arguments[i], nullptr, 10));
    if (sizes.empty() && std::filesystem::exists("/dev/nvidiactl")) sizes = {8, 32};
    if (sizes.empty()) sizes = {1};
    bool right = true;
    for (const std::size_t gib : sizes)
        for (const bool trusted : {true, false})
            for (const bool linger : {false, true}) right = measure(gib, trusted, linger) && right;
    return right ? 0 : 1;
}
