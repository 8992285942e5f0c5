// Plays operations on a saver with one tag for each policy, and compares it with a simple model. The caller supplies
// the operations: random numbers or a fuzzer's bytes. Either some driver calls fail, on a host machine, or none does,
// on any machine: amounts are exact then, and arrivals stay open. Independent of any test framework.
//
// Covered: allocating and freeing, in tags and plain memory, in every order; pause (in every order, and with another
// policy for one pause), resume (also without bytes, and streamed), saving ahead, exchange, uses, reclaims,
// drop, forget_backup, changes of capacity, trim, prepare, invalidate, views of backups and changes to them; loads from
// a file; writes by the CPU, and by the device as late as no call waits for them; capturing, launching, updating and
// dropping graphs; a pool of workspaces; commits and releases of an elastic range; loss of the device; the end of the
// saver. Not covered: several threads, several devices, hooks, timeouts, regions of tags, misuse except operations that
// paused memory refuses, and out of memory except by injected failures.
#pragma once

#include "memsaver/backup/compressed.hpp"
#include "memsaver/backup/verified.hpp"
#include "memsaver/memsaver.hpp"
#include "memsaver/testing/testing.hpp"
#include "support/handles.hpp"
#include "support/host_calls.hpp"
#include "support/played.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace test {

/// The saver contradicts the model.
struct Broken : std::logic_error {
    using std::logic_error::logic_error;
};
inline void hold(bool condition, const std::string& what) {
    if (!condition) throw Broken{what};
}

/// `Choices` provides `below(end)`: a number from 0 to `end` - 1.
template <class Choices>
struct Player {
    using Driver = FaultyDriver<AnyDriver>;

    explicit Player(Choices& choices) : choices_{choices}, fails_{true} { begin(); }
    /// No call fails.
    Player(Choices& choices, const Driver& machine) : choices_{choices}, driver_{machine} { begin(); }

    /// Plays one operation.
    void step() {
        using P = Player;
        // clang-format off
        static constexpr std::pair<std::size_t, void (P::*)()> acts[]{
            {4, &P::allocate_in_tag}, {6, &P::deallocate}, {8, &P::pause}, {11, &P::resume}, {12, &P::trim},
            {13, &P::rewrite}, {14, &P::prepare}, {15, &P::look}, {16, &P::check_all}, {17, &P::allocate_plain},
            {18, &P::write_late}, {20, &P::record}, {21, &P::launch}, {22, &P::drop_graph}, {23, &P::workspace},
            {24, &P::drop}, {25, &P::forget_backup}, {26, &P::resume_without_bytes}, {27, &P::set_capacity},
            {29, &P::exchange}, {30, &P::use}, {31, &P::reclaim}, {32, &P::resume_streamed}, {33, &P::save_ahead},
            {36, &P::elastic}, {37, &P::end_something}};
        // clang-format on
        const std::size_t chosen = choices_.below(37);
        for (const auto& [below, act] : acts)
            if (chosen < below) return (this->*act)();
    }

    /// Checks everything that the model knows.
    void check_all() {
        std::size_t mapped = 0;
        for (const ArenaUsage& row : saver_->usage()) {
            mapped += row.mapped_bytes;
            std::size_t live = 0;
            bool away = false;
            for (const auto& [address, block] : blocks_) {
                if (tags_[block.tag].name != row.tag) continue;
                live += block.bytes;
                away = away || block.away;
            }
            hold(row.used_bytes == live, "used bytes are those of the live blocks of " + row.tag);
            hold(!away || row.paused_bytes != 0, "what is away is shown as away in " + row.tag);
        }
        hold(mapped == driver_->handle_bytes() + driver_->plain_bytes(),
             "mapped bytes are those of the handles and of plain memory");
        for (const auto& [address, block] : blocks_) check_bytes(address, block);
        if (elastic_) {
            const auto steps = std::count_if(blocks_.begin(), blocks_.end(), [&](const auto& at) {
                return at.first >= step_at(0) && at.first < step_at(16);
            });
            hold(elastic_.committed_bytes() == static_cast<std::size_t>(steps) * granule, "what is committed is known");
        }
        check_nothing_misused();
    }

    /// Frees everything and closes the saver.
    void end() {
        settle();
        coming_ = {};
        graphs_.clear();
        forget_workspaces();
        forget_elastic();
        repeat([&] { (void)saver_->resume(); });
        for (auto& [address, block] : blocks_) block.resume();
        check_all();
        for (const auto& [address, block] : blocks_) saver_->deallocate(pointer(address), already_idle);
        blocks_.clear();
        (void)saver_->trim();
        hold(driver_->handle_bytes() + driver_->plain_bytes() == 0, "a trim gives everything back");
        saver_->close();
        saver_.reset();
        hold(driver_->close_stream(stream_).ok(), "a stream closes");
        handles_.reset();
        if (const auto host = on_host()) hold(host->counts().held_bytes == 0, "no memory is held after the end");
        Outstanding left = driver_->outstanding();
        const auto forgive = [&](std::size_t& count, Call close) { // nothing was left to call it again
            count -= std::min<std::size_t>(count, driver_->injected(close));
        };
        forgive(left.events, Call::close_event);
        forgive(left.streams, Call::close_stream);
        forgive(left.graphs, Call::close_graph);
        forgive(left.files, Call::close_file);
        hold(left == Outstanding{}, "nothing leaks but what could not be closed: " + driver_->leaks());
        check_nothing_misused();
    }

    /// Returns the number of calls that failed so far.
    [[nodiscard]] std::uint64_t injected() const { return injected_before_ + driver_->injected(); }

private:
    using Blocks = PlayedBlocks;
    struct PlayedGraph {
        Graph graph;
        std::uint64_t seed = 0; ///< of what it writes to its block
    };

    /// Makes a saver, and a machine for it if calls fail.
    void begin() {
        if (fails_) driver_.emplace(HostDriver{machine_bytes, {.poison = true, .late = true}});
        if (!fails_) handles_.emplace(*driver_);
        saver_.emplace(*driver_, options_);
        tags_.clear();
        const std::string directory = std::filesystem::temp_directory_path().string();
        const HostBackup pageable{.storage = Storage::pageable, .retain = false, .threads = 1, .ring_bytes = 4_MiB};
        const FileBackup file{.directory = directory, .threads = 1, .ring_bytes = 4_MiB};
        add("poison", Discard{.poison = static_cast<unsigned char>(0xDD)}, Holds::lost);
        add("zero", Zero{}, Holds::zero);
        add("pinned", in_host_memory, Holds::written);
        add("once", HostBackup{.refresh = Refresh::once, .threads = 1}, Holds::written);
        add("pageable", pageable, Holds::written, {.single_handle = true});
        add("file", file, Holds::written);
        add("verified", Verified<HostBackup>{in_host_memory}, Holds::written);
        add("source", FileSource{.threads = 1, .ring_bytes = 4_MiB}, Holds::written);
        try {
            add("packed", Compressed<HostBackup>{.policy = in_host_memory, .piece_bytes = 2_MiB, .pieces = 2},
                Holds::written);
        } catch (const Unavailable&) { // a GPU's codec is not installed
            add("packed", in_host_memory, Holds::written);
        }
        add("workspaces", in_host_memory, Holds::written);
        tags_.push_back({"outside", Holds::written, Discard{}}); // plain memory, which is never paused
        hold(driver_->open_stream(stream_).ok(), "a stream opens");
    }
    template <class Policy>
    void add(const char* name, Policy policy, Holds becomes, const ArenaOptions& options = {}) {
        (void)saver_->arena(name, policy, options);
        tags_.push_back({name, becomes, std::move(policy)});
    }
    static unsigned char* pointer(Address address) { return reinterpret_cast<unsigned char*>(address); }
    [[nodiscard]] std::optional<HostDriver> on_host() const { return driver_->inner().template as<HostDriver>(); }
    std::size_t mapped_of(const std::string& tag) {
        std::size_t bytes = 0;
        for (const ArenaUsage& row : saver_->usage()) bytes += row.tag == tag ? row.mapped_bytes : 0;
        return bytes;
    }

    // --- Calls that may fail ---

    /// Runs `act`, possibly with a planned failure; returns whether it succeeded. It throws only because of failures.
    template <class Act>
    bool attempt(Act&& act) {
        const bool failing = fails_ && choices_.below(3) == 0;
        const std::uint64_t before = driver_->injected();
        if (failing) {
            constexpr StatusKind kinds[] = {StatusKind::other, StatusKind::out_of_memory,
                                            StatusKind::out_of_host_memory};
            driver_->fail({.nth = 1 + choices_.below(24),
                           .lasting = choices_.below(2) == 0 ? Lasting::once : Lasting::onwards,
                           .kind = kinds[choices_.below(3)]});
        }
        try {
            act();
            driver_->heal();
            return true;
        } catch (const Misuse& error) {
            throw Broken{std::string{"a misuse that was none: "} + error.what()};
        } catch (const Error& error) {
            driver_->heal();
            hold(driver_->injected() != before, std::string{"failed although no call did: "} + error.what());
            return false;
        }
    }
    /// Likewise, and may repeat it after a failure; returns whether it succeeded in the end.
    template <class Act>
    bool attempt_again(Act&& act, std::size_t gives_up = 1) {
        if (attempt(act)) return true;
        if (choices_.below(2) == gives_up) return false;
        repeat(act);
        return true;
    }
    /// Runs `act` until it succeeds: once failures stop, it continues where it stopped.
    template <class Act>
    static void repeat(Act&& act) {
        try {
            act();
        } catch (const Error& error) {
            throw Broken{std::string{"failed although failures have stopped: "} + error.what()};
        }
    }
    /// Runs `act`, possibly with a planned failure, until it succeeds.
    template <class Act>
    void surely(Act&& act) {
        if (!attempt(act)) repeat(act);
    }
    template <class Act>
    static void refused(Act&& act, const char* what) {
        try {
            act();
        } catch (const Misuse&) {
            return;
        } catch (const Error& error) {
            throw Broken{std::string{what} + " is misuse, not: " + error.what()};
        }
        throw Broken{std::string{what} + " is misuse"};
    }

    // --- Operations ---

    void allocate_in_tag() { allocate(choices_.below(tags_.size() - 1)); }
    void allocate_plain() { allocate(tags_.size() - 1); }
    void end_something() { fails_&& choices_.below(4) == 0 ? lose_device() : drop_workspaces(); }
    void allocate(std::size_t tag) {
        constexpr std::size_t sizes[] = {1, 256, 6912, 100'000, 1_MiB, 2_MiB + 1, 5_MiB};
        const bool plain = tag == tags_.size() - 1;
        PlayedBlock block{.tag = tag, .bytes = sizes[choices_.below(std::size(sizes))]};
        if (!fails_) block.bytes = 1 + choices_.below(3 * block.bytes); // a fuzzer chooses among 256
        if (blocks_.bytes() + block.bytes > most_bytes) return;
        const bool strict = choices_.below(4) == 0 && !plain;
        const std::size_t alignment = !strict ? 256 : fails_ ? 4096 : std::size_t{256} << choices_.below(14);
        const bool on_stream = choices_.below(4) == 0; // may reuse what the stream has freed but not completed
        void* memory = nullptr;
        const auto act = [&] {
            if (!plain && on_stream) {
                memory = saver_->arena(tags_[tag].name).allocate(block.bytes, stream_, alignment);
            } else if (!plain) {
                memory = saver_->arena(tags_[tag].name).allocate(block.bytes, alignment);
            } else {
                const auto out = saver_->outside();
                memory = saver_->allocate(block.bytes);
            }
        };
        if (!attempt_again(act, 0)) return;
        const auto address = reinterpret_cast<Address>(memory);
        hold(address % alignment == 0, "blocks are aligned");
        take(address, block);
        if (on_stream) settle();
        write(blocks_.at(address), address);
    }

    void deallocate() {
        const auto block = any();
        if (block == blocks_.end() || block->second.workspace) return;
        graphs_.erase(block->first); // a program that replays a graph that writes to freed memory is wrong
        const std::size_t how = choices_.below(3);
        if (how == 2) settle();
        if (!block->second.late) check_bytes(block->first, block->second);
        const auto act = [&] {
            switch (how) {
            case 0: return saver_->deallocate(pointer(block->first));
            case 1: return saver_->deallocate(pointer(block->first), stream_);
            default: return saver_->deallocate(pointer(block->first), already_idle);
            }
        };
        if (!attempt(act)) {
            if (!block->second.late) check_bytes(block->first, block->second); // still the program's
            repeat(act);
        }
        blocks_.erase(block);
    }

    void pause() {
        const std::vector<std::size_t> chosen = some_tags();
        const std::vector<std::string> names = names_of(chosen);
        std::optional<Holds> once;
        PauseOptions options;
        bool waits_for_less = false; // than the device: released pages may stay
        switch (choices_.below(12)) {
        case 0: once = Holds::lost, options.bytes = Discard{}; break;
        case 1: once = Holds::zero, options.bytes = Zero{}; break;
        case 2: once = Holds::written, options.bytes = in_host_memory; break;
        case 3: options.order = after(stream_), waits_for_less = true; break; // all late work is in this stream
        case 4: settle(), options.order = already_idle, waits_for_less = true; break;
        default: break;
        }
        const auto act = [&] { (void)saver_->pause(names, options); };
        const bool again = attempt_again(act);
        for (const std::string& name : names)
            hold(fails_ || waits_for_less || mapped_of(name) == 0, "a pause takes all pages: " + name);
        note_pause(chosen, again, once);
    }

    /// Updates the model of tags that are paused, or whose pause failed.
    void note_pause(const std::vector<std::size_t>& chosen, bool paused, std::optional<Holds> once = {}) {
        for (auto& [address, block] : blocks_) {
            if (block.away || !contains(chosen, block.tag)) continue;
            const Holds becomes = once.value_or(tags_[block.tag].becomes);
            if (paused) {
                block.pause(becomes);
                block.late = false;
            } else if (becomes != Holds::written) {
                block.holds = Holds::lost; // parts of it may be paused: unknown until it is written again
            }
        }
        if (!paused) bring_back(chosen); // the other way out of a failed pause
    }

    void resume() {
        const std::vector<std::size_t> chosen = some_tags();
        const std::vector<std::string> names = names_of(chosen);
        const std::size_t need = fails_ ? 0 : saver_->bytes_to_resume(names);
        (void)attempt([&] {
            const Report report = saver_->resume(names);
            hold(fails_ || report.mapped_bytes == need, "a resume takes what was said");
        });
        bring_back(chosen);
        check_bytes_in(chosen);
    }

    /// Exchanges some tags for others.
    void exchange() {
        const std::vector<std::size_t> in = some_tags();
        std::vector<std::size_t> out = some_tags();
        std::erase_if(out, [&](std::size_t tag) { return contains(in, tag); });
        if (out.empty()) return;
        const std::vector<std::string> going = names_of(out);
        const std::vector<std::string> coming = names_of(in);
        const std::size_t need = fails_ ? 0 : saver_->bytes_to_resume(coming);
        const std::size_t before = driver_->handle_bytes();
        const auto act = [&] {
            const Report report = saver_->exchange(going, coming);
            if (fails_) return;
            hold(report.mapped_bytes == need && report.handed_bytes <= need, "an exchange takes what was said");
            hold(driver_->handle_bytes() + report.released_bytes + report.handed_bytes == before + need,
                 "the report of an exchange adds up");
            for (const std::string& name : going) hold(mapped_of(name) == 0, "what goes takes nothing: " + name);
        };
        const bool again = attempt_again(act);
        note_pause(out, again);
        bring_back(in);
        check_bytes_in(in);
    }
    /// Uses tags. After a use they may be evicted, by a reclaim or when the device is out of memory.
    void use() {
        const std::vector<std::size_t> chosen = some_tags();
        const std::vector<std::string> names = names_of(chosen);
        const bool marked = choices_.below(2) == 0;
        settle(); // the end of a use asserts that its work is complete
        (void)attempt([&] {
            Use use = saver_->use(names);
            for (const ArenaUsage& row : saver_->usage()) {
                if (std::find(names.begin(), names.end(), row.tag) == names.end()) continue;
                hold(row.users == 1 && row.paused_bytes == 0, "what is in use is here: " + row.tag);
            }
            if (marked) use.until(stream_);
        });
        note_evictions();
        bring_back(chosen);
        check_bytes_in(chosen);
    }
    void reclaim() {
        settle();
        surely([&] { (void)saver_->reclaim(1_GiB); });
        for (const ArenaUsage& row : saver_->usage())
            hold(!row.evictable || row.mapped_bytes == 0, "a reclaim of all takes all that is idle: " + row.tag);
        note_evictions();
    }
    /// Updates the model of tags that may have been evicted from their states; resumes one whose eviction stopped
    /// halfway.
    void note_evictions() {
        std::vector<std::size_t> between;
        for (const ArenaUsage& row : saver_->usage()) {
            if (!row.evictable || row.paused_bytes == 0) continue;
            for (auto& [address, block] : blocks_) {
                if (tags_[block.tag].name != row.tag || block.away) continue;
                if (row.state == "paused") {
                    block.pause(tags_[block.tag].becomes);
                } else if (tags_[block.tag].becomes != Holds::written) {
                    block.holds = Holds::lost;
                }
                if (row.state != "paused" && !contains(between, block.tag)) between.push_back(block.tag);
            }
        }
        if (between.empty()) return;
        bring_back(between);
    }
    /// Starts a streamed resume, and either waits for the bytes or lets the next call end it.
    void resume_streamed() {
        const std::vector<std::size_t> chosen = some_tags();
        const std::vector<std::string> names = names_of(chosen);
        ResumeAsyncOptions options;
        const auto wanted = any();
        if (wanted != blocks_.end() && contains(chosen, wanted->second.tag)) {
            options.first.push_back({pointer(wanted->first), wanted->second.bytes});
        }
        Arrival coming;
        const std::size_t how = choices_.below(5);
        if (how == 4) settle(); // the end of a use asserts that its work is complete
        (void)attempt([&] {
            Gate gate;
            // A workspace that has grown consists of several blocks, and a gate covers bytes of one.
            if (how == 3 && !options.first.empty() && tags_[wanted->second.tag].name != "workspaces") {
                gate = saver_->gate(options.first.front().pointer, options.first.front().bytes);
            }
            coming = saver_->resume_async(names, options);
            if (how == 0) coming.wait();
            if (how == 1) coming.before(stream_);
            if (how == 2) saver_->prepare("once");
            if (how == 3 && gate) gate.before(stream_);
            if (how == 4) {
                const Use kept = saver_->use(names, {.await_bytes = false});
                coming.wait();
            }
        });
        if (!fails_ && how < 4) { // every block is waited for; the arrival ends later, or is ended
            hold(saver_->bytes_to_resume(names) == 0, "what arrives is here");
            for (auto& [address, block] : blocks_) {
                if (!contains(chosen, block.tag)) continue;
                tags_[block.tag].name == "workspaces" ? coming.wait() : coming.wait(pointer(address), block.bytes);
                block.resume();
            }
            coming_ = std::move(coming);
        } else {
            bring_back(chosen);
        }
        note_evictions(); // of a use after bytes that could not be restored
        check_bytes_in(chosen);
    }

    /// Saves ahead, so that the next pause copies nothing.
    void save_ahead() {
        const auto act = [&] {
            const Arrival saved = saver_->save("once");
            if (choices_.below(2) == 0) saved.wait();
        };
        (void)attempt(act);
    }

    /// Resumes without restoring bytes, as if new bytes followed.
    void resume_without_bytes() {
        const std::vector<std::size_t> chosen = some_tags();
        const std::vector<std::string> names = names_of(chosen);
        for (auto& [address, block] : blocks_) {
            if (block.away && contains(chosen, block.tag)) block.away = Holds::lost;
        }
        surely([&] { (void)saver_->resume(names, {.bytes = Discard{}}); });
        for (auto& [address, block] : blocks_) {
            if (contains(chosen, block.tag)) block.resume();
        }
    }

    /// Drops the backup of paused memory.
    void forget_backup() {
        const std::size_t tag = choices_.below(tags_.size() - 1);
        surely([&] { saver_->forget_backup(tags_[tag].name); });
        for (auto& [address, block] : blocks_) {
            if (block.away && block.tag == tag) block.away = Holds::lost;
        }
    }

    /// Drops a tag with all its memory and makes it again.
    void drop() {
        const std::size_t tag = choices_.below(tags_.size() - 1);
        settle();
        if (tag == tags_.size() - 2) forget_workspaces();
        if (elastic_ && tag == elastic_tag_) forget_elastic();
        std::erase_if(graphs_, [&](const auto& graph) { return blocks_.at(graph.first).tag == tag; });
        surely([&] { saver_->drop(tags_[tag].name); });
        std::erase_if(blocks_, [&](const auto& block) { return block.second.tag == tag; });
        const bool apart = tags_[tag].name == std::string{"pageable"};
        surely([&] { (void)saver_->arena(tags_[tag].name, tags_[tag].policy, ArenaOptions{.single_handle = apart}); });
    }

    /// Sets a capacity that is never reached: tests that it may change at any time.
    void set_capacity() {
        saver_->set_capacity(tags_[choices_.below(tags_.size() - 1)].name, choices_.below(2) == 0 ? 0 : 1_GiB);
        saver_->set_margin(choices_.below(2) == 0 ? 0 : 1_MiB);
        saver_->set_retain(choices_.below(2) == 0 ? Tags{"pinned"} : Tags{"pageable"}, choices_.below(2) == 0);
    }

    void trim() {
        TrimOptions options;
        if (choices_.below(4) == 0) options.order = after(stream_);
        surely([&] { (void)saver_->trim(options); });
    }

    /// Changes bytes and invalidates them.
    void rewrite() {
        const auto block = any();
        if (block == blocks_.end()) return;
        if (block->second.away) return rewrite_backup(block->first, block->second);
        settle();
        if (tags_[block->second.tag].name == "source") return load(block->first, block->second);
        write(block->second, block->first);
        invalidate(block->second.tag);
    }
    /// Loads a part of a block from a file and writes the rest.
    void load(Address address, PlayedBlock& block) {
        surely([&] { saver_->invalidate(pointer(address), block.bytes); });
        write(block, address);
        if (choices_.below(4) == 0 || block.bytes > PlayedFile::bytes_each) return;
        block.seed = PlayedFile::first_seed + choices_.below(PlayedFile::seeds);
        put(block, address);
        const std::size_t begin = choices_.below(block.bytes);
        const std::size_t count = choices_.below(2) == 0 ? block.bytes - begin : 1 + (block.bytes - begin - 1) / 3;
        const auto act = [&] {
            saver_->load(pointer(address) + begin, count, file_.path, PlayedFile::offset_of(block.seed) + begin);
        };
        if (attempt(act)) return;
        repeat(act);
    }
    /// Rewrites paused memory in its backup.
    void rewrite_backup(Address address, PlayedBlock& block) {
        if (!block.kept() || block.workspace) return; // a workspace is several blocks
        block.seed = ++seeds_;
        block.flat = false;
        std::vector<unsigned char> bytes(block.bytes);
        block.write(bytes.data());
        surely([&] { saver_->write_backup(pointer(address), bytes.data(), bytes.size()); });
    }
    /// Rewrites on the device, with a delay.
    void write_late() {
        const auto block = any();
        if (block == blocks_.end() || block->second.away) return;
        fill(block->second, block->first, ++seeds_);
        invalidate(block->second.tag);
    }
    void invalidate(std::size_t tag) {
        if (tag == tags_.size() - 1 || keeps_nothing(tags_[tag].name)) return;
        surely([&] { saver_->invalidate(tags_[tag].name); });
    }

    void prepare() {
        const std::string& name = tags_[choices_.below(tags_.size() - 1)].name;
        if (!keeps_nothing(name)) (void)attempt([&] { saver_->prepare(name); });
    }
    /// Preparing and invalidating a policy that keeps no bytes is misuse.
    static bool keeps_nothing(const std::string& name) {
        return name == "poison" || name == "zero" || name == "discard";
    }

    /// Reads the backup of paused memory.
    void look() {
        const auto block = any();
        if (block != blocks_.end() && block->second.kept()) look_at(block->first, block->second);
    }
    void look_at(Address address, const PlayedBlock& block) {
        // A workspace consists of the parts by which it grew; the first is at least a granule.
        const std::size_t count = block.workspace ? granule : block.bytes;
        BackupView view;
        surely([&] { view = saver_->backup_view(pointer(address), count); });
        hold(block.same(reinterpret_cast<const unsigned char*>(view.data()), count), "a view shows the kept bytes");
    }

    /// Captures a graph that writes to its own block, and to one that it freed.
    void record() {
        PlayedBlock block{.tag = choices_.below(tags_.size() - 1), .bytes = 100'000, .holds = Holds::lost};
        if (blocks_.bytes() + block.bytes > most_bytes) return;
        PlayedGraph recorded{{}, ++seeds_};
        void* memory = nullptr;
        const auto act = [&] {
            recorded.graph = capture(*saver_, tags_[block.tag].name, stream_, [&] {
                if (memory == nullptr) memory = saver_->allocate(block.bytes);
                const Buffer<unsigned char> scratch{saver_->arena(tags_[block.tag].name), block.bytes};
                check(driver_->fill(reinterpret_cast<Address>(scratch.data()), 0xEE, block.bytes, stream_), "fill");
                fill_on_stream(block, reinterpret_cast<Address>(memory), recorded.seed);
            });
        };
        bool done = attempt(act);
        if (!done) {
            end_open_capture();
            done = choices_.below(2) == 0;
            if (done) repeat(act);
        }
        if (memory == nullptr) return;
        const auto address = reinterpret_cast<Address>(memory);
        take(address, block); // the program's, whatever the result of the capture
        if (done) graphs_.emplace(address, std::move(recorded));
    }

    /// Launches a graph, possibly after capturing it again.
    void launch() {
        if (graphs_.empty()) return;
        auto& chosen = *std::next(graphs_.begin(), static_cast<std::ptrdiff_t>(choices_.below(graphs_.size())));
        const Address address = chosen.first;
        PlayedGraph& played = chosen.second;
        PlayedBlock& block = blocks_.at(address);
        if (blocks_.any_paused(block.tag)) {
            return refused([&] { played.graph.launch(stream_); }, "launching a graph whose tag is paused");
        }
        bring_back({block.tag}); // also resumes paused memory that no block uses
        if (choices_.below(3) == 0) {
            const std::uint64_t seed = ++seeds_;
            const auto act = [&] { played.graph.update(stream_, [&] { fill_on_stream(block, address, seed); }); };
            if (!attempt(act)) {
                end_open_capture();
                if (choices_.below(2) == 0) repeat(act), played.seed = seed; // otherwise it is unchanged
            } else {
                played.seed = seed;
            }
        }
        surely([&] { played.graph.launch(stream_); });
        written_late(block, played.seed);
        invalidate(block.tag);
    }

    void drop_graph() {
        if (graphs_.empty()) return;
        const auto graph = std::next(graphs_.begin(), static_cast<std::ptrdiff_t>(choices_.below(graphs_.size())));
        hold(attempt([&] { graphs_.erase(graph); }), "a graph's end is quiet");
    }
    /// If the call that ends a capture fails permanently, the capture stays open until the program ends it.
    void end_open_capture() {
        bool open = false;
        hold(driver_->capturing(stream_, open).ok(), "a stream can be asked");
        GraphRef graph;
        if (open && driver_->end_capture(stream_, graph).ok()) hold(driver_->close_graph(graph).ok(), "a graph closes");
    }

    /// Gets a workspace. Two names share a place, one has its own. Each place is a block in the model; its group's name
    /// maps to its address.
    void workspace() {
        constexpr const char* names[] = {"a", "b", "c"};
        constexpr std::size_t sizes[] = {1000, 100'000, 2_MiB + 1, 4_MiB};
        const std::string name = names[choices_.below(std::size(names))];
        const std::size_t bytes = sizes[choices_.below(std::size(sizes))];
        if (blocks_.bytes() + bytes > most_bytes) return;
        const std::string group = name == "c" ? "alone" : "shared";
        const std::size_t tag = tags_.size() - 2;
        if (!pool_) pool_.emplace(saver_->arena(tags_[tag].name), WorkspacePoolOptions{.cap = 8_MiB});
        void* memory = nullptr;
        const auto act = [&] { memory = pool_->get(name, bytes, {.group = group}); };
        const auto known = places_.find(group);
        PlayedBlock* const place = known == places_.end() ? nullptr : &blocks_.at(known->second);
        if (place != nullptr && place->away && bytes > place->bytes) {
            return refused(act, "growing a workspace that is paused");
        }
        if (!attempt_again(act, 0)) return;
        const auto address = reinterpret_cast<Address>(memory);
        const std::size_t granules = align_up(bytes, granule);
        if (place == nullptr) {
            take(address, {.tag = tag, .bytes = granules, .workspace = true});
            places_[group] = address;
            write(blocks_.at(address), address);
            return invalidate(tag);
        }
        hold(address == known->second, "a workspace stays where it is");
        if (granules <= place->bytes) return;
        settle();
        if (place->holds == Holds::written) {
            hold(same(*place, address), "growing a workspace leaves its bytes alone");
        }
        place->bytes = granules;
        write(*place, address);
        invalidate(tag);
    }
    void drop_workspaces() {
        hold(attempt([&] { forget_workspaces(); }), "a pool's end is quiet");
    }
    void forget_workspaces() {
        pool_.reset();
        for (const auto& [group, address] : places_) blocks_.erase(address);
        places_.clear();
    }

    /// Commits or releases some steps of a range, which are blocks in the model, or ends the range.
    void elastic() {
        const std::size_t first = choices_.below(12);
        const std::size_t count = 1 + choices_.below(4);
        if (!elastic_) {
            elastic_tag_ = choices_.below(tags_.size() - 2);
            surely([&] {
                elastic_ = saver_->arena(tags_[elastic_tag_].name).elastic(16 * granule, {.granularity = granule});
            });
        }
        switch (choices_.below(9)) {
        case 0: return hold(attempt([&] { forget_elastic(); }), "an elastic range's end is quiet");
        case 1:
        case 2:
        case 3:
        case 4: return commit(first, count);
        default: return release(first, count);
        }
    }
    [[nodiscard]] Address step_at(std::size_t n) const {
        return reinterpret_cast<Address>(elastic_.data()) + n * granule;
    }
    void commit(std::size_t first, std::size_t count) {
        if (blocks_.bytes() + count * granule > most_bytes) return;
        const auto act = [&] { elastic_.commit(first * granule, count * granule - 1); };
        for (std::size_t n = 0; n < 16; ++n) {
            const auto step = blocks_.find(step_at(n));
            if (step != blocks_.end() && step->second.away) return refused(act, "committing what is paused");
        }
        const std::size_t before = elastic_.committed_bytes();
        const std::size_t mapped = mapped_of(tags_[elastic_tag_].name);
        if (!attempt(act)) {
            hold(elastic_.committed_bytes() == before, "a commit is all or nothing");
            if (choices_.below(2) == 0) return;
            repeat(act);
        }
        hold(fails_ || mapped_of(tags_[elastic_tag_].name) <= mapped + elastic_.committed_bytes() - before,
             "a commit takes no more than its steps"); // and may release what waited
        for (std::size_t n = first; n < first + count; ++n) {
            if (blocks_.find(step_at(n)) != blocks_.end()) continue;
            take(step_at(n), {.tag = elastic_tag_, .bytes = granule, .workspace = true});
            write(blocks_.at(step_at(n)), step_at(n));
        }
        invalidate(elastic_tag_);
    }
    /// Releases the committed steps from `first` on, up to a hole.
    void release(std::size_t first, std::size_t count) {
        while (first < 16 && blocks_.find(step_at(first)) == blocks_.end()) ++first;
        std::size_t end = first;
        while (end < std::min<std::size_t>(first + count, 16) && blocks_.find(step_at(end)) != blocks_.end()) ++end;
        if (end == first) return refused([&] { elastic_.release(0, 16 * granule); }, "releasing what is not committed");
        const std::size_t how = choices_.below(4);
        if (how == 3) settle();
        surely([&] {
            switch (how) {
            case 0: return elastic_.release(first * granule, (end - first) * granule + 1);
            case 1:
            case 2: return elastic_.release(first * granule, (end - first) * granule, after(stream_));
            default: return elastic_.release(first * granule, (end - first) * granule, already_idle);
            }
        });
        for (; first < end; ++first) blocks_.erase(step_at(first));
    }
    void forget_elastic() {
        if (!elastic_) return;
        for (std::size_t n = 0; n < 16; ++n) blocks_.erase(step_at(n));
        elastic_ = {};
    }

    /// Loses the device during an operation: no later device call succeeds. Bytes kept on the host stay readable,
    /// closing reports no error, and host resources are released. Then continues on a new machine.
    void lose_device() {
        settle();
        const std::vector<std::size_t> chosen = some_tags();
        const std::vector<std::string> names = names_of(chosen);
        const std::size_t what = choices_.below(5);
        std::atomic<std::size_t> calls_left{choices_.below(24)};
        driver_->on_call([&](const CallRecord& made) {
            if (is_of_the_host(made.call)) return;
            for (std::size_t left = calls_left; left != 0;) {
                if (calls_left.compare_exchange_weak(left, left - 1)) return;
            }
            driver_->fail({.call = made.call, .kind = StatusKind::gone});
        });
        const std::uint64_t before = driver_->injected();
        try {
            switch (what) {
            case 0: (void)saver_->pause(names); break;
            case 1: (void)saver_->resume(names); break;
            case 2: (void)saver_->trim(); break;
            case 3:
                if (!keeps_nothing(names.front())) saver_->prepare(names.front());
                break;
            default: (void)saver_->arena(names.front()).allocate(5_MiB); break;
            }
        } catch (const DeviceLost&) {
            hold(driver_->injected() != before, "a device is lost only if it is");
        } catch (const Error& error) {
            throw Broken{std::string{"a lost device is DeviceLost, not: "} + error.what()};
        }
        calls_left = 0;
        on_host()->lose(); // the machine's own threads stop as well
        for (const ArenaUsage& row : saver_->usage()) {
            if (row.state != "paused") continue;
            for (auto& [address, block] : blocks_) {
                if (tags_[block.tag].name != row.tag) continue;
                block.pause(tags_[block.tag].becomes);
                if (block.kept()) look_at(address, block);
            }
        }
        graphs_.clear();
        forget_workspaces();
        forget_elastic();
        repeat([&] { saver_->close(); });
        saver_.reset();
        driver_->on_call({});
        driver_->heal();
        (void)driver_->close_stream(stream_); // gone, with its machine
        const Outstanding left = driver_->outstanding();
        hold(left.host_pages == 0 && left.files <= driver_->injected(Call::close_file),
             "what is the host's goes back: " + driver_->leaks());
        check_nothing_misused(true);
        blocks_.clear();
        injected_before_ += driver_->injected();
        begin();
    }

    // --- Bytes ---

    /// Adds a new block of the program.
    void take(Address address, const PlayedBlock& block) { hold(blocks_.add(address, block), "blocks do not overlap"); }
    void bring_back(const std::vector<std::size_t>& chosen) {
        repeat([&] { (void)saver_->resume(names_of(chosen)); });
        for (auto& [address, block] : blocks_) {
            if (contains(chosen, block.tag)) block.resume();
        }
    }
    void check_bytes(Address address, const PlayedBlock& block) {
        if (block.away) return;
        settle();
        if (!fails_ && tags_[block.tag].name == "pageable")
            hold(handles_->behind_one(pointer(address), block.bytes), "a block has a handle of its own");
        hold(same(block, address), block.holds == Holds::zero ? "bytes are zero" : "bytes are as they were written");
    }
    void check_bytes_in(const std::vector<std::size_t>& chosen) {
        for (const auto& [address, block] : blocks_)
            if (contains(chosen, block.tag)) check_bytes(address, block);
    }
    void write(PlayedBlock& block, Address address) {
        block.seed = ++seeds_;
        block.flat = false;
        block.holds = Holds::written;
        put(block, address);
    }
    /// Writes as completed work of the device does: the CPU may, on a host machine.
    void put(const PlayedBlock& block, Address address) {
        if (on_host()) return block.write(pointer(address));
        std::vector<unsigned char> bytes(block.bytes);
        block.write(bytes.data());
        hold(driver_->copy_to_device(address, bytes.data(), bytes.size(), stream_).ok(), "bytes are copied");
        hold(driver_->drain().ok(), "the device can be waited for");
    }
    bool same(const PlayedBlock& block, Address address) {
        if (on_host()) return block.same(pointer(address), block.bytes);
        std::vector<unsigned char> bytes(block.bytes);
        hold(driver_->copy_to_host(bytes.data(), address, bytes.size(), stream_).ok(), "bytes are copied");
        hold(driver_->drain().ok(), "the device can be waited for");
        return block.same(bytes.data(), bytes.size());
    }
    /// Fills in stream order, or records the fill if the stream is being captured.
    void fill_on_stream(PlayedBlock block, Address address, std::uint64_t seed) {
        block.seed = seed;
        block.flat = true;
        check(driver_->fill(address, block.byte_at(0), block.bytes, stream_), "fill");
    }
    void fill(PlayedBlock& block, Address address, std::uint64_t seed) {
        fill_on_stream(block, address, seed);
        written_late(block, seed);
    }
    void written_late(PlayedBlock& block, std::uint64_t seed) {
        block.seed = seed;
        block.flat = true;
        block.holds = Holds::written;
        block.late = true;
        busy_ = true;
    }
    /// Waits for the device.
    void settle() {
        if (!std::exchange(busy_, false)) return;
        hold(driver_->drain().ok(), "the device can be waited for");
        for (auto& [address, block] : blocks_) block.late = false;
    }
    void check_nothing_misused(bool lost = false) const {
        for (const std::string& text : driver_->violations()) {
            // A lost device holds no pins; this error only reports the loss.
            hold(lost && text.find("pinned") != std::string::npos, text);
        }
        const auto host = on_host();
        if (!host) return;
        for (const std::string& text : host->violations()) hold(false, text);
    }

    // --- Choices ---

    std::vector<std::size_t> some_tags() {
        const std::size_t count = tags_.size() - 1; // except plain memory
        if (choices_.below(4) == 0) {               // all
            std::vector<std::size_t> all;
            for (std::size_t i = 0; i < count; ++i) all.push_back(i);
            return all;
        }
        std::vector<std::size_t> chosen{choices_.below(count)};
        if (choices_.below(3) == 0) chosen.push_back(choices_.below(count));
        return chosen;
    }
    [[nodiscard]] std::vector<std::string> names_of(const std::vector<std::size_t>& chosen) const {
        std::vector<std::string> names;
        for (const std::size_t i : chosen) names.push_back(tags_[i].name);
        return names;
    }
    static bool contains(const std::vector<std::size_t>& chosen, std::size_t tag) {
        return std::find(chosen.begin(), chosen.end(), tag) != chosen.end();
    }
    Blocks::iterator any() { return blocks_.any(choices_); }

    static constexpr std::size_t machine_bytes = 256_MiB;
    static constexpr std::size_t most_bytes = 48_MiB;
    static constexpr std::size_t granule = 2_MiB;
    const HostBackup in_host_memory{.threads = 1};

    Choices& choices_;
    const bool fails_ = false;
    inline static const PlayedFile file_;
    SaverOptions options_;
    std::optional<Driver> driver_;
    std::optional<Handles<Driver>> handles_;
    std::optional<MemorySaver<Driver>> saver_;
    StreamRef stream_;
    std::vector<PlayedTag> tags_; // the last one is plain memory, the one before it the workspaces
    Blocks blocks_;
    std::map<Address, PlayedGraph> graphs_; // by the block that each writes to
    std::optional<WorkspacePool> pool_;
    std::map<std::string, Address> places_; // of the pool's groups
    Arrival coming_;
    Elastic elastic_;
    std::size_t elastic_tag_ = 0;
    std::uint64_t seeds_ = 0;
    std::uint64_t injected_before_ = 0; // on lost machines
    bool busy_ = false;                 // the device may have work
};
} // namespace test
