// How long members of a share wait beyond what the driver and the kernel take: for pages that another one releases, for
// those of a holder that is killed, and for an answer when the leader is killed. On the first GPU, or without one on a
// simulated device. Medians and the longest of some rounds, in milliseconds.
//
//   waits [ROUNDS]     default: 15
#include "processes.hpp"

#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <atomic>
#include <new>

namespace {

using namespace processes;
using std::chrono::seconds;

/// What the processes tell each other.
struct Board {
    std::atomic<int> ready{0};
    std::atomic<bool> release{false};
    std::atomic<double> released{0};
    std::atomic<double> served{0};
};

void until(const std::atomic<int>& number, int at_least) {
    while (number < at_least) (void)::usleep(200);
}

Share join(const Place& place, const AnyDriver& device, const char* name) {
    return Share{device, {.name = name, .trusted = true, .folder = place.folder}};
}

std::size_t part_of(const AnyDriver& device) {
    DeviceMemory memory;
    check(device.memory(memory), "query the memory");
    return memory.total_bytes / 100 * 60 / 2_MiB * 2_MiB; // two do not fit
}

void lead(const Place& place, Board& board) {
    const Share share = join(place, place.device(), "leader");
    board.ready += 1;
    for (;;) (void)::pause();
}

void hold(const Place& place, Board& board) {
    const AnyDriver device = place.device();
    const Share share = join(place, device, "holder");
    PageHandle pages;
    check(share.driver().create(part_of(device), pages), "create");
    board.ready += 1;
    while (!board.release) (void)::usleep(100);
    check(share.driver().release(pages), "release");
    board.released = milliseconds();
    for (;;) (void)::pause();
}

void wait(const Place& place, Board& board) {
    const AnyDriver device = place.device();
    const Share share = join(place, device, "waiter");
    board.ready += 1;
    check(share.driver().ask_for_room(part_of(device), std::chrono::nanoseconds{seconds{30}}.count()), "wait");
    board.served = milliseconds();
    for (;;) (void)::pause();
}

/// Until the descriptor says something: a process, that it has ended; a connection, that it has.
double heard(int descriptor) {
    pollfd polled{descriptor, POLLIN, 0};
    if (::poll(&polled, 1, 30'000) != 1) std::exit(1);
    return milliseconds();
}

/// Asks for the members until a leader answers.
double answered(const detail::ShareFolder& folder) {
    for (;; (void)::usleep(100)) {
        const detail::ShareFd link = folder.connect();
        detail::ShareMessage message;
        detail::ShareFd none;
        message.kind = detail::ShareMessage::Kind::list;
        if (!link || !detail::send_message(link.get(), message)) continue;
        pollfd polled{link.get(), POLLIN, 0};
        (void)::poll(&polled, 1, 30'000);
        if (detail::receive_message(link.get(), message, none) == detail::ShareReceived::message) return milliseconds();
    }
}

enum class What { released, killed, both, leader };

/// One round: from what has ended to the answer.
double round(What what, double& kernel) {
    const Place place{24_MiB}; // little: the simulated device frees page by page what a killed process had
    void* const shared = ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) std::exit(1);
    Board& board = *new (shared) Board;
    std::vector<pid_t> all;
    const auto join_in = [&](auto&& body) {
        all.push_back(start(body));
        until(board.ready, static_cast<int>(all.size()));
    };
    if (what != What::both) join_in([&] { lead(place, board); });
    join_in([&] { hold(place, board); });
    const pid_t holder = all.back();
    join_in([&] { wait(place, board); });
    (void)::usleep(120'000); // it waits
    double took = 0;
    if (what == What::released) {
        board.release = true;
        while (board.served == 0 || board.released == 0) (void)::usleep(200);
        took = board.served - board.released;
    } else if (what != What::leader) {
        const detail::ShareFd process =
            detail::ShareFd::opened([&] { return static_cast<int>(::syscall(SYS_pidfd_open, holder, 0)); });
        const double from = milliseconds();
        (void)::kill(holder, SIGKILL);
        const double ended = heard(process.get());
        kernel = ended - from;
        while (board.served == 0) (void)::usleep(200);
        took = board.served - ended;
    } else {
        const detail::ShareFolder folder{"", place.folder};
        const detail::ShareFd link = folder.connect();
        const double from = milliseconds();
        (void)::kill(all.front(), SIGKILL);
        const double ended = heard(link.get());
        kernel = ended - from;
        took = answered(folder) - ended;
    }
    for (const pid_t each : all) processes::kill(each);
    (void)::munmap(shared, sizeof(Board));
    return took;
}

} // namespace

int main(int count, char** arguments) {
    const int rounds = count > 1 ? std::atoi(arguments[1]) : 15;
    const auto measure = [&](What what, const char* text, const char* beside) {
        std::vector<double> took;
        std::vector<double> kernel;
        for (int i = 0; i < rounds; ++i) {
            double part = 0;
            took.push_back(round(what, part));
            kernel.push_back(part);
        }
        std::printf("%s: median %.2f, longest %.2f", text, median(took), *std::max_element(took.begin(), took.end()));
        if (beside[0] != '\0') std::printf(" (%s: median %.2f)", beside, median(kernel));
        std::printf("\n");
    };
    measure(What::released, "from the end of a release to the waiter that gets the pages", "");
    measure(What::killed, "from the end of a killed holder to the waiter", "from SIGKILL to that end");
    measure(What::both, "from the end of a killed holder that leads to the waiter", "from SIGKILL to that end");
    measure(What::leader, "from the end of a killed leader's connection to the next one's first answer",
            "from SIGKILL to that end");
    return 0;
}
