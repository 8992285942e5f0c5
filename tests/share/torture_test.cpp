// Processes that do at random all that members of a share can do, and are killed and stopped at random moments. Every
// byte is checked against a pattern; afterwards the device is whole again.
//
// MEMSAVER_TORTURE_KILLS: how many processes are killed. MEMSAVER_TORTURE_SEED: another run. MEMSAVER_TORTURE_GPU=1: on
// the first GPU, of which another process holds all but the pages that the players use and their contexts.
#include "memsaver/share/share.hpp"
#include "share/share_support.hpp"
#include "support/machines.hpp"
#include "support/random.hpp"

#include <sys/prctl.h>

namespace share_torture_test {
using namespace test;

const bool on_gpu = std::getenv("MEMSAVER_TORTURE_GPU") != nullptr;
const std::size_t page = on_gpu ? 192_MiB : share_support::page; // as large as what GPUs pass on
constexpr std::size_t pages = 64;

/// Room on a GPU that nobody takes: the players' contexts need it.
constexpr std::size_t contexts = 12 * 640_MiB;
struct BesideContexts final : DeviceAround {
    using DeviceAround::DeviceAround;
    Status memory(DeviceMemory& memory) noexcept override {
        const Status status = DeviceAround::memory(memory);
        memory.free_bytes -= std::min(memory.free_bytes, contexts);
        return status;
    }
};

struct Place : share_support::Place {
    [[nodiscard]] AnyDriver device() const {
        if (on_gpu) return AnyDriver{std::make_shared<BesideContexts>(CudaDriver{0})};
        return share_support::Place::device();
    }
    [[nodiscard]] Share join(ShareOptions options) const {
        return share_support::Place::join(std::move(options), device());
    }
};

/// On a GPU, a process that holds what is not the players', for as long as the object lives. It is no child of this
/// process, which waits for all of its own. This process never uses the GPU: its children could not.
struct Rest {
    Rest() {
        if (!on_gpu) return;
        int until[2];
        int ready[2];
        REQUIRE(::pipe(until) == 0);
        REQUIRE(::pipe(ready) == 0);
        const pid_t between = ::fork();
        if (between == 0) {
            if (::fork() != 0) ::_exit(0);
            (void)::close(until[1]);
            hold(ready[1], until[0]);
        }
        (void)::waitpid(between, nullptr, 0);
        (void)::close(until[0]);
        (void)::close(ready[1]);
        char byte = 0;
        const bool holds = ::read(ready[0], &byte, 1) == 1;
        (void)::close(ready[0]);
        until_ = until[1];
        REQUIRE(holds);
    }
    ~Rest() {
        if (until_ >= 0) (void)::close(until_);
    }

private:
    [[noreturn]] static void hold(int ready, int until) noexcept {
        try {
            const CudaDriver device{0};
            MemorySaver<> saver{device};
            const std::size_t free = memory_of(device).free_bytes;
            const std::size_t others = pages * page + contexts + 3_GiB;
            if (free > others) (void)saver.arena("rest").allocate((free - others) / 1_GiB * 1_GiB);
            char byte = 1;
            (void)!::write(ready, &byte, 1);
            (void)::close(ready);
            (void)!::read(until, &byte, 1); // until its end
            ::_exit(0);
        } catch (...) {
            ::_exit(1);
        }
    }

    int until_ = -1;
};

using Clock = std::chrono::steady_clock;

std::int64_t now() { return std::chrono::nanoseconds{Clock::now().time_since_epoch()}.count(); }
constexpr double in_ms(std::int64_t ns) { return static_cast<double>(ns) / 1e6; }

struct Random : test::Random {
    using test::Random::Random;
    /// Less than `end`.
    std::uint64_t operator()(std::uint64_t end) { return next() % end; }
    bool one_in(std::uint64_t many) { return (*this)(many) == 0; }
    /// Mostly short.
    std::chrono::microseconds time(std::chrono::microseconds longest) {
        const double part = static_cast<double>((*this)(1000)) / 1000;
        return std::chrono::microseconds{
            static_cast<std::int64_t>(part * part * part * static_cast<double>(longest.count()))};
    }
};

/// What the players and their referee both see: memory that they share.
struct Board {
    static constexpr std::size_t most = 8;
    struct Seat {
        std::atomic<const char*> act{nullptr}; // what its player does
        std::atomic<std::int64_t> since{0};
        std::atomic<std::int64_t> stopped{0}; // for so long in all
        std::atomic<bool> wrong{false};
        char text[400];
    };
    std::array<Seat, most> seats;
    std::atomic<std::uint64_t> next_number{1};
    std::atomic<bool> over{false};
    std::atomic<std::uint64_t> acts{0};
    std::atomic<std::uint64_t> passed{0};
    std::atomic<std::uint64_t> attached{0};
    std::atomic<std::uint64_t> forked{0};
};

/// The words of a part of a page.
using Words = std::array<std::uint64_t, share_support::page / sizeof(std::uint64_t)>;

/// Where players write and look: the simulated device's memory, all of it; on a GPU, 64 KiB of each 12 MiB.
struct Memory {
    explicit Memory(AnyDriver device) : device_{std::move(device)} {}
    /// Calls `look(words, page)` for each part, until it returns false.
    template <class Look>
    bool each(void* block, std::size_t bytes, Look look) const {
        for (std::size_t at = 0; at < bytes; at += step())
            if (!look(static_cast<char*>(block) + at, at / page)) return false;
        return true;
    }
    void write(void* at, const Words& words) const {
        if (!on_gpu)
            std::memcpy(at, words.data(), sizeof words);
        else
            copy([&](StreamRef stream) {
                return device_.copy_to_device(reinterpret_cast<Address>(at), words.data(), sizeof words, stream);
            });
    }
    void read(const void* at, Words& words) const {
        if (!on_gpu)
            std::memcpy(words.data(), at, sizeof words);
        else
            copy([&](StreamRef stream) {
                return device_.copy_to_host(words.data(), reinterpret_cast<Address>(at), sizeof words, stream);
            });
    }

private:
    static std::size_t step() { return on_gpu ? page / 16 : page; }
    template <class Copy>
    void copy(Copy call) const {
        StreamRef stream;
        check(device_.open_stream(stream), "open a stream");
        Status status = call(stream);
        if (status.ok()) status = device_.drain();
        (void)device_.close_stream(stream);
        check(status, "copy");
    }

    AnyDriver device_;
};

/// Words that say whose they are, which write of that process they are of, and which page of a block.
struct Pattern {
    std::uint64_t owner = 0;
    std::uint64_t write = 0;

    [[nodiscard]] std::uint64_t word(std::size_t index) const {
        return owner << 40U | (write & 0xFFFFU) << 24U | index;
    }
    void put(const Memory& memory, void* block, std::size_t bytes) const {
        Words words;
        (void)memory.each(block, bytes, [&](char* at, std::size_t index) {
            words.fill(word(index));
            memory.write(at, words);
            return true;
        });
    }
    [[nodiscard]] bool is_in(const Memory& memory, const void* block, std::size_t bytes) const {
        Words words;
        return memory.each(const_cast<void*>(block), bytes, [&](const char* at, std::size_t index) {
            memory.read(at, words);
            return std::all_of(words.begin(), words.end(), [&](std::uint64_t each) { return each == word(index); });
        });
    }
    /// The first word that is neither this process's nor 0; 0 if there is none.
    [[nodiscard]] std::uint64_t stranger_in(const Memory& memory, void* block, std::size_t bytes) const {
        Words words;
        std::uint64_t found = 0;
        (void)memory.each(block, bytes, [&](const char* at, std::size_t) {
            memory.read(at, words);
            for (const std::uint64_t each : words)
                if (each != 0 && each >> 40U != owner) found = each;
            return found == 0;
        });
        return found;
    }
};

/// A process that does something at random, again and again.
struct Player {
    Player(const Place& place, Board& board, std::size_t seat, std::uint64_t seed)
        : place_{place}, board_{board}, seat_{board.seats[seat]}, random_{seed}, mine_{board.next_number++, 0} {}

    int play() {
        do {
            Member member{*this};
            for (bool stays = true; stays && !board_.over;) {
                stays = act(member);
                board_.acts += 1;
            }
            if (random_.one_in(4)) ::_exit(0); // in the middle
        } while (!board_.over && random_.one_in(2));
        return 0;
    }

private:
    struct Tag {
        std::string name;
        void* block = nullptr;
        std::size_t bytes = 0;
        bool kept = false; // its bytes are, by a pause
        Pattern pattern{};
        bool sealed = false;
    };
    struct Model {
        Attached attached;
        Pattern pattern;
        std::size_t bytes;
    };
    struct Member {
        explicit Member(Player& player)
            : trusted{player.random_.one_in(2)}, share{player.surely("join", [&] { return player.join(trusted); })},
              saver{share.driver()} {}
        bool trusted;
        Share share;
        MemorySaver<> saver;
        Memory memory{saver.driver()};
        std::vector<Tag> tags;
        std::vector<Model> models;
        std::optional<Lending> lending;
    };

    [[noreturn]] void wrong(const std::string& text) {
        if (!seat_.wrong.exchange(true))
            (void)std::snprintf(seat_.text, sizeof seat_.text, "%s: %s", seat_.act.load(), text.c_str());
        ::_exit(3);
    }

    /// Makes a call, which the referee ends if it takes too long.
    template <class F>
    std::invoke_result_t<F> surely(const char* what, F call) {
        struct Watch {
            Watch(Board::Seat& watched, const char* act) : seat{watched} {
                seat.act = act;
                seat.since = now();
            }
            ~Watch() { seat.since = 0; }
            Board::Seat& seat;
        };
        const Watch watch{seat_, what};
        try {
            return call();
        } catch (const OutOfMemory&) {
            throw;
        } catch (const NotIdle&) {
            throw;
        } catch (const std::exception& error) {
            wrong(error.what());
        }
    }
    /// Likewise, and it may fail for want of room or of time.
    template <class F>
    bool tried(const char* what, F call) {
        try {
            surely(what, call);
            return true;
        } catch (const OutOfMemory&) {
        } catch (const NotIdle&) {
        }
        return false;
    }

    Share join(bool trusted) {
        ShareOptions options;
        options.name = "p" + std::to_string(mine_.owner);
        options.priority = static_cast<int>(random_(3));
        options.floor = random_(3) * 2 * page;
        if (random_.one_in(3)) options.ceiling = 40 * page;
        options.trusted = trusted;
        if (random_.one_in(3)) options.linger = std::chrono::milliseconds{random_(300)};
        options.answer_within = 300ms;
        options.folder = place_.folder;
        const std::uint64_t calls = random_.one_in(3) ? 1 + random_(random_.one_in(2) ? 60 : 1500) : 0;
        const FaultyDriver<AnyDriver> device{place_.device()};
        device.on_call([this, left = std::make_shared<std::atomic<std::uint64_t>>(calls)](const CallRecord& made) {
            if ((*left)-- == 1) (void)::kill(::getpid(), SIGKILL);
            if (made.call == Call::import_pages) board_.passed += 1;
        });
        return Share{device, options};
    }

    /// Returns false if it leaves.
    bool act(Member& m) {
        static constexpr std::pair<std::uint64_t, void (Player::*)(Member&)> acts[]{
            {4, &Player::add},   {11, &Player::use},      {13, &Player::pause},   {14, &Player::resume},
            {15, &Player::drop}, {16, &Player::lend},     {18, &Player::publish}, {20, &Player::attach},
            {21, &Player::read}, {22, &Player::withdraw}, {23, &Player::fork}};
        const std::uint64_t chosen = random_(24);
        for (const auto& [below, does] : acts)
            if (chosen < below) return (this->*does)(m), true;
        (void)::usleep(static_cast<useconds_t>(random_.time(5ms).count()));
        return !random_.one_in(10);
    }

    Tag* any(Member& m) { return m.tags.empty() ? nullptr : &m.tags[random_(m.tags.size())]; }

    void add(Member& m) {
        if (m.tags.size() >= 4) return;
        static constexpr std::array<std::size_t, 4> sizes{2, 8, 24, 24};
        Tag tag;
        tag.name = "t" + std::to_string(names_++);
        tag.bytes = sizes[random_(sizes.size())] * page;
        tag.kept = random_.one_in(2);
        const ArenaOptions options{.evictable = !random_.one_in(4)};
        Arena arena =
            tag.kept ? m.saver.arena(tag.name, HostBackup{}, options) : m.saver.arena(tag.name, Discard{}, options);
        const bool done = tried("allocate", [&] {
            tag.block = arena.allocate(tag.bytes);
            // Before it can be evicted, unless it was already: then its first use writes it.
        });
        if (!done) return m.saver.drop(tag.name);
        m.tags.push_back(tag);
        write(m, m.tags.back(), true);
    }

    void write(Member& m, Tag& tag, bool first = false) {
        (void)tried("write", [&] {
            const Use use = m.saver.use(tag.name, {.room_within = 300ms, .timeout = 300ms});
            check(m, tag, first);
            if (tag.sealed) return;
            tag.pattern = {mine_.owner, ++mine_.write};
            tag.pattern.put(m.memory, tag.block, tag.bytes);
            if (random_.one_in(3)) (void)::usleep(static_cast<useconds_t>(random_.time(3ms).count()));
            if (!tag.pattern.is_in(m.memory, tag.block, tag.bytes)) wrong("bytes changed while in use, " + tag.name);
        });
    }
    /// While it is in use.
    void check(Member& m, const Tag& tag, bool first = false) {
        if (tag.kept && tag.pattern.owner != 0 && !tag.pattern.is_in(m.memory, tag.block, tag.bytes))
            wrong("bytes are not what was written, " + tag.name);
        if (m.trusted || (tag.kept && !first)) return;
        if (const std::uint64_t word = mine_.stranger_in(m.memory, tag.block, tag.bytes); word != 0)
            wrong("bytes of process " + std::to_string(word >> 40U) + " were not cleared");
    }
    void use(Member& m) {
        if (Tag* const tag = any(m)) write(m, *tag);
    }
    void pause(Member& m) {
        Tag* const tag = any(m);
        if (tag == nullptr) return;
        (void)tried("pause", [&] { (void)m.saver.pause(tag->name); });
    }
    void resume(Member& m) {
        Tag* const tag = any(m);
        if (tag == nullptr) return;
        const std::chrono::milliseconds within{random_.one_in(3) ? 0 : random_(200)};
        (void)tried("resume", [&] { (void)m.saver.resume(tag->name, {.room_within = within}); });
    }
    void drop(Member& m) {
        if (m.tags.empty()) return;
        const auto at = m.tags.begin() + static_cast<std::ptrdiff_t>(random_(m.tags.size()));
        surely("drop", [&] { m.saver.drop(at->name); });
        m.tags.erase(at);
    }
    void lend(Member& m) {
        surely("lend", [&] {
            if (m.lending)
                m.lending.reset();
            else
                m.lending.emplace(m.share.lend(m.saver));
        });
    }
    static std::string publication(std::uint64_t number) { return "model" + std::to_string(number); }
    void publish(Member& m) {
        Tag* const tag = any(m);
        if (tag == nullptr || !tag->kept || tag->bytes > 8 * page || tag->sealed || tag->pattern.owner == 0) return;
        (void)tried("publish", [&] {
            const Use use = m.saver.use(tag->name, {.room_within = 300ms, .timeout = 300ms});
            const std::string version = std::to_string(tag->pattern.owner) + '-' + std::to_string(tag->pattern.write) +
                                        '-' + std::to_string(tag->bytes);
            (void)m.share.publish(publication(random_(3)), m.saver, tag->name,
                                  {version, {{"bytes", tag->block, tag->bytes}}});
            tag->sealed = true; // for this process until a pause; simply for ever
        });
    }
    void attach(Member& m) {
        if (m.models.size() >= 3) return;
        (void)tried("attach", [&] {
            try {
                Attached attached = m.share.attach(publication(random_(3)), m.saver);
                Model model{std::move(attached), {}, 0};
                unsigned long long owner = 0;
                unsigned long long write = 0;
                const std::string& tag = model.attached.tag();
                if (std::sscanf(tag.c_str() + tag.find('@'), "@%llu-%llu-%zu", &owner, &write, &model.bytes) != 3)
                    wrong("a publication with the tag " + tag);
                model.pattern = {owner, write};
                m.models.push_back(std::move(model));
            } catch (const Unavailable&) { // nothing of this name; withdrawn; or its last keeper was killed
                return;
            } catch (const Misuse& error) { // has it
                if (std::string{error.what()}.find("tag") == std::string::npos) throw;
                return;
            }
            board_.attached += 1;
            look_at(m, m.models.back());
        });
    }
    void look_at(Member& m, const Model& model) {
        const Use use = m.saver.use(model.attached.tag(), {.room_within = 300ms, .timeout = 300ms});
        if (!model.pattern.is_in(m.memory, model.attached.at("bytes").data, model.bytes))
            wrong("a publication has other bytes, " + model.attached.tag());
        if (random_.one_in(2)) model.attached.verify();
    }
    void read(Member& m) {
        if (m.models.empty()) return;
        const std::size_t index = random_(m.models.size());
        const Model& model = m.models[index];
        if (random_.one_in(2)) {
            (void)tried("read", [&] { look_at(m, model); });
        } else if (random_.one_in(2)) {
            (void)tried("pause what is attached", [&] { (void)m.saver.pause(model.attached.tag()); });
        } else {
            surely("drop what is attached", [&] { m.saver.drop(model.attached.tag()); });
            m.models.erase(m.models.begin() + static_cast<std::ptrdiff_t>(index));
        }
    }
    void withdraw(Member& m) {
        surely("withdraw", [&] {
            try {
                m.share.withdraw(publication(random_(3)));
            } catch (const Unavailable&) { // is not published
            }
        });
    }
    /// A child that may outlive its parent.
    void fork(Member& m) {
        const auto lives = random_.time(30ms);
        const pid_t child = ::fork();
        if (child != 0) {
            board_.forked += 1;
            return;
        }
        if (share_support::has_share_descriptors(place_)) ::_exit(6);
        try {
            (void)m.share.members();
            ::_exit(4);
        } catch (const Misuse&) {
        } catch (...) {
            ::_exit(4);
        }
        (void)::usleep(static_cast<useconds_t>(lives.count()));
        ::_exit(5);
    }

    const Place& place_;
    Board& board_;
    Board::Seat& seat_;
    Random random_;
    Pattern mine_;
    int names_ = 0;
};

/// Starts players, kills and stops them, and sees that all goes well.
struct Referee {
    Referee(Board& board, std::uint64_t seed) : board_{board}, random_{seed} {}

    int kills = 0;
    int rounds = 0;

    /// Returns false if something is wrong, and says what.
    bool round(int most) {
        const Place place;
        place_ = &place;
        board_.over = false;
        seats_.assign(4 + random_(Board::most - 3), {});
        if (random_.one_in(2)) start_onlooker();
        for (std::size_t i = 0; i < seats_.size(); ++i) start(i);
        for (int left = most; left > 0 && good_;) {
            (void)::usleep(
                static_cast<useconds_t>(random_.time(on_gpu ? 600ms : 60ms).count())); // a GPU's start is slow
            Seat& seat = seats_[random_(seats_.size())];
            if (random_.one_in(3))
                stop(seat);
            else if (!random_.one_in(3))
                (void)::kill(seat.process, SIGKILL);
            for (std::size_t i = 0; i < seats_.size(); ++i) {
                Seat& each = seats_[i];
                if (each.stopped_since != 0 && now() >= each.stopped_until) go_on(each);
                left -= ended(each) ? 1 : 0;
                if (each.process == 0) start(i);
                stuck(i);
            }
        }
        finish();
        rounds += 1;
        place_ = nullptr;
        return good_;
    }

private:
    struct Seat {
        pid_t process = 0;
        std::size_t number = 0;
        std::int64_t stopped_since = 0;
        std::int64_t stopped_until = 0;
    };

    void fault(const std::string& text) {
        if (!std::exchange(good_, false)) return;
        FAIL_CHECK(text);
    }

    pid_t start_process(const std::function<int()>& body) {
        const pid_t process = ::fork();
        REQUIRE(process >= 0);
        if (process != 0) return process;
        for (const int signal : {SIGSEGV, SIGABRT, SIGBUS, SIGILL, SIGFPE, SIGTERM}) (void)std::signal(signal, SIG_DFL);
        int code = 125;
        try {
            code = body();
        } catch (const std::exception& error) {
            (void)std::fprintf(stderr, "torture: %s\n", error.what());
        }
        ::_exit(code);
    }

    /// A member that only leads, and lives to the end: what passes through it must not stay there.
    void start_onlooker() {
        int ends[2];
        REQUIRE(::pipe(ends) == 0);
        onlooker_ = start_process([&] {
            const Share share = place_->join({.name = "onlooker"});
            (void)::close(ends[1]);
            (void)::close(ends[0]);
            for (;;) (void)::pause();
            return 0;
        });
        (void)::close(ends[1]);
        char byte = 0;
        (void)!::read(ends[0], &byte, 1); // it leads
        (void)::close(ends[0]);
    }

    void start(std::size_t index) {
        Seat& seat = seats_[index];
        seat = {};
        seat.number = index;
        Board::Seat& shown = board_.seats[index];
        shown.act = nullptr;
        shown.since = shown.stopped = 0;
        const std::uint64_t seed = random_(~std::uint64_t{0});
        seat.process = start_process([&] { return Player{*place_, board_, index, seed}.play(); });
    }

    void stop(Seat& seat) {
        if (seat.stopped_since != 0 || ::kill(seat.process, SIGSTOP) != 0) return;
        seat.stopped_since = now();
        const auto lasts = random_.one_in(10) ? std::chrono::microseconds{500ms} : random_.time(60ms);
        seat.stopped_until = seat.stopped_since + std::chrono::nanoseconds{lasts}.count();
    }
    void go_on(Seat& seat) {
        board_.seats[seat.number].stopped += now() - seat.stopped_since;
        seat.stopped_since = 0;
        (void)::kill(seat.process, SIGCONT);
    }

    /// Looks after a player that has ended. Whether it was killed.
    bool ended(Seat& seat) {
        int status = 0;
        if (seat.process == 0 || ::waitpid(seat.process, &status, WNOHANG) != seat.process) return false;
        seat.process = 0;
        if (Board::Seat& shown = board_.seats[seat.number]; shown.wrong.exchange(false)) fault(shown.text);
        const bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
        if (killed) kills += 1;
        if (!killed && !(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 3)))
            fault("a player ended with status " + std::to_string(status) + " in " + act_of(seat.number));
        return killed;
    }
    std::string act_of(std::size_t index) {
        const char* const act = board_.seats[index].act;
        return act == nullptr ? "nothing" : act;
    }
    void stuck(std::size_t index) {
        const std::int64_t since = board_.seats[index].since;
        const std::int64_t lasts = now() - since - board_.seats[index].stopped;
        const std::int64_t too_long = std::chrono::nanoseconds{30s}.count();
        if (since != 0 && seats_[index].stopped_since == 0 && lasts > too_long) {
            fault("process " + std::to_string(seats_[index].process) + " has been in " + act_of(index) + " for " +
                  std::to_string(in_ms(lasts)) + " ms");
            if (std::getenv("MEMSAVER_TORTURE_WAITS") != nullptr) (void)::pause(); // for a debugger
        }
    }

    /// Of the players' pages, in the round's place.
    std::size_t free_pages() {
        const auto count = [&] { return std::min(memory_of(place_->device()).free_bytes / page, pages); };
        if (!on_gpu) return count();
        const pid_t counts = start_process([&] { return static_cast<int>(count()); });
        int status = 0;
        (void)::waitpid(counts, &status, 0);
        return WIFEXITED(status) ? static_cast<std::size_t>(WEXITSTATUS(status)) : 0;
    }

    void end_onlooker() {
        const auto all_free = [&] { return free_pages() == pages; };
        if (good_ && !share_support::soon(all_free)) fault("a leader that lives keeps pages");
        (void)::kill(onlooker_, SIGKILL);
        onlooker_ended_ = std::exchange(onlooker_, 0);
    }

    /// Ends all, by force or not, while somebody waits for most of the device; then nothing may be left.
    void finish() {
        const bool by_force = random_.one_in(2);
        std::optional<pid_t> last;
        const auto start_last = [&] {
            last = start_process([&] {
                const Share share = place_->join({.name = "last", .priority = 9, .answer_within = 300ms});
                MemorySaver<> saver{share.driver()};
                if (!share.driver().ask_for_room(60 * page, std::chrono::nanoseconds{30s}.count()).ok()) return 6;
                for (int tries = 0; tries < 100; ++tries) { // what was granted goes back if this process is slow
                    try {
                        (void)saver.arena("all").allocate(60 * page);
                        return 0;
                    } catch (const OutOfMemory&) {
                        (void)::usleep(1000);
                    }
                }
                return 7;
            });
        };
        if (random_.one_in(2)) { // early
            start_last();
            (void)::usleep(static_cast<useconds_t>(random_.time(60ms).count()));
        }
        board_.over = true;
        for (Seat& each : seats_) {
            if (by_force && each.process != 0) (void)::kill(each.process, SIGKILL);
            if (each.stopped_since != 0) go_on(each);
        }
        const std::int64_t began = now();
        for (bool all = false; !all; (void)::usleep(500)) {
            all = true;
            for (std::size_t i = 0; i < seats_.size(); ++i) {
                (void)ended(seats_[i]);
                all = all && seats_[i].process == 0;
                if (!good_ && seats_[i].process != 0) (void)::kill(seats_[i].process, SIGKILL);
                if (seats_[i].process != 0) stuck(i);
            }
            if (now() - began > std::chrono::nanoseconds{60s}.count()) fault("players do not end");
        }
        if (!last) start_last();
        int status = 0;
        while (const pid_t process = ::waitpid(-1, &status, 0)) {
            if (process < 0) break;
            if (process == *last) {
                if (status != 0) fault("the last one did not get its room, status " + std::to_string(status));
                if (onlooker_ != 0) end_onlooker();
                continue;
            }
            if (process == onlooker_ended_) continue;
            // A forked child, which keeps pages of the simulated device.
            if (!WIFEXITED(status) || WEXITSTATUS(status) != 5)
                fault("a forked child ended with status " + std::to_string(status));
        }
        if (const std::size_t free = free_pages(); free != pages)
            fault("only " + std::to_string(free) + " of the pages are free in the end");
    }

    Board& board_;
    Random random_;
    const Place* place_ = nullptr;
    std::vector<Seat> seats_;
    pid_t onlooker_ = 0;
    pid_t onlooker_ended_ = 0;
    bool good_ = true;
};

std::uint64_t number_in(const char* variable, std::uint64_t usual) {
    const char* const text = std::getenv(variable);
    return text == nullptr ? usual : std::strtoull(text, nullptr, 10);
}

TEST_CASE("share torture: processes that do everything at random and are killed at random lose no byte and no page") {
    const std::uint64_t kills = number_in("MEMSAVER_TORTURE_KILLS", test::sanitized ? 20 : 60);
    const std::uint64_t seed = number_in("MEMSAVER_TORTURE_SEED", 1);
    void* const shared = ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(shared != MAP_FAILED);
    auto* const board = new (shared) Board{};
    const Rest rest;
    REQUIRE(::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0); // children of those that were killed come here
    const std::int64_t began = now();
    Referee referee{*board, seed};
    while (static_cast<std::uint64_t>(referee.kills) < kills && referee.round(25)) {
    }
    (void)::prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0);
    const std::string done =
        std::to_string(referee.kills) + " killed in " + std::to_string(referee.rounds) + " rounds and " +
        std::to_string(static_cast<int>(in_ms(now() - began))) + " ms with seed " + std::to_string(seed) + "; " +
        std::to_string(board->acts.load()) + " acts, " + std::to_string(board->passed.load()) + " pages passed, " +
        std::to_string(board->attached.load()) + " attached, " + std::to_string(board->forked.load()) + " forked";
    if (std::getenv("MEMSAVER_TORTURE_KILLS") != nullptr) MESSAGE(done);
    (void)::munmap(shared, sizeof(Board));
}
} // namespace share_torture_test
