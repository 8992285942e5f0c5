// Bytes sourced from a file: loaded from it, never saved, read again at every resume.
#include "backup/backup_support.hpp"
#include "backup/file_source_support.hpp"
#include "support/each_of.hpp"
#include "support/sampling.hpp"

namespace backup_file_source_test {
using namespace test;
using Bytes = std::vector<unsigned char>;

/// Small buffers, so that a few megabytes are many pieces.
FileSource small_source(unsigned threads = 3) { return {.threads = threads, .ring_bytes = threads * 4_MiB}; }

/// A block that is loaded from a file "model" with a pattern in it.
struct Loaded : Buffer<unsigned char> {
    Loaded(const ModelFiles& files, const Arena& arena, std::size_t count, std::uint64_t seed = 1)
        : Buffer{arena, count}, path{files.put("model", pattern(count, seed))} {
        arena.load(data(), count, path);
    }
    template <class D>
    [[nodiscard]] bool whole(const D& driver, std::uint64_t seed = 1) const {
        return has_pattern(driver, data(), size(), seed);
    }

    const std::string path;
};

struct OnFiles : OnTold {
    const ModelFiles files{};
};

struct OnModel : OnFiles {
    const Arena model = saver.arena("model", small_source());
};

TEST_CASE_FIXTURE(OnFiles, "FileSource: whole blocks save nothing and take only the ring" * on_machines) {
    const Arena model = saver.arena("model", FileSource{.threads = 1, .ring_bytes = 4_MiB, .retain = false});
    const Loaded block{files, model, 3'999'999};
    CHECK(machine.driver.host_bytes() == 0);
    CHECK(saver.pause("model").saved_bytes == 0);
    CHECK(machine.driver.host_bytes() == 0);
    CHECK(row_of(saver, "model").backed_up_bytes == 0);
    CHECK(saver.resume("model").restored_bytes == block.size());
    CHECK(machine.driver.host_bytes() == 0);
    CHECK(machine.driver.outstanding().files == 0);
    CHECK(machine.driver.calls(Call::write_file) == 0);
    CHECK(block.whole(machine.driver));
}

TEST_CASE_FIXTURE(OnModel, "FileSource: many ranges of many files in one block; the rest is kept" * on_machines) {
    constexpr std::size_t size = 5'000'000;
    const Bytes one = pattern(3'000'000, 1);
    const Bytes two = pattern(2'000'000, 2);
    const std::string first = files.put("one", one);
    const std::string second = files.put("two", two);
    const Buffer<unsigned char> block{model, size};
    Bytes is = pattern(size, 3);
    write_bytes(machine.driver, block.data(), is);
    const auto load = [&](std::size_t to, std::size_t count, bool of_one, std::size_t offset) {
        model.load(block.data() + to, count, of_one ? first : second, offset);
        std::memcpy(is.data() + to, (of_one ? one : two).data() + offset, count);
    };
    const auto write = [&](std::size_t to, std::size_t count, std::uint64_t seed) {
        const Bytes fresh = pattern(count, seed);
        write_bytes(machine.driver, block.data() + to, fresh);
        std::memcpy(is.data() + to, fresh.data(), count);
    };
    for (std::size_t i = 0; i < 40; ++i) load(i * 50'001, 40'003, i % 3 != 0, i * 17);
    load(3'000'001, 1'500'000, false, 499'999);
    load(3'100'000, 300'000, true, 1);   // within the loaded range: the later one wins
    load(3'399'000, 900'000, false, 77); // across an end
    CHECK(read_bytes(machine.driver, block.data(), size) == is);
    const auto cycle = [&] {
        const Report report = saver.pause("model");
        saver.resume("model");
        CHECK(read_bytes(machine.driver, block.data(), size) == is);
        return report.saved_bytes;
    };
    const std::size_t saved = cycle();
    CHECK(saved > 0);
    CHECK(saved < size - 3'000'000);
    CHECK(cycle() == saved);

    // Changed bytes that were invalidated are kept; unreported changes are replaced from the file.
    write(3'050'000, 100'000, 9);
    model.invalidate(block.data() + 3'050'000, 100'000);
    CHECK(cycle() == saved + 100'000);
    write(3'050'001, 50'000, 10); // already kept: needs no further invalidate
    CHECK(cycle() == saved + 100'000);
    load(3'050'000, 100'000, true, 5); // until it is loaded again
    CHECK(cycle() == saved);
    write_pattern(machine.driver, block.data() + 3'050'000, 100'000, 9);
    CHECK(saver.pause("model").saved_bytes == saved);
    saver.resume("model");
    CHECK(read_bytes(machine.driver, block.data(), size) == is);
    saver.invalidate("model"); // all of it
    write(0, size, 20);
    CHECK(cycle() >= size);
}

/// A machine that reads past the page cache, and on which a file is replaced before it is opened for that.
struct Replaced : DeviceAround {
    Replaced(const MachineDriver& driver, std::string from, std::string to)
        : DeviceAround{driver}, aside{std::move(from)}, path{std::move(to)} {}
    Status open_source(const char* name, bool direct, FileRef& file) noexcept override {
        if (direct) (void)std::rename(aside.c_str(), path.c_str());
        return DeviceAround::open_source(name, false, file);
    }
    Status file_cached(FileRef, std::size_t, std::size_t, bool& yes) noexcept override { return yes = false, Status{}; }
    const std::string aside;
    const std::string path;
};

TEST_CASE_FIXTURE(OnFiles, "FileSource: a file that is replaced while it is being opened is read as it was") {
    const std::string path = files.put("model", pattern(1_MiB, 1));
    const std::string aside = files.put("aside", pattern(1_MiB, 2));
    MemorySaver own{AnyDriver{std::make_shared<Replaced>(machine.driver, aside, path)}};
    const Buffer<unsigned char> block{own.arena("model", small_source()), 1_MiB};
    own.load(block.data(), 1_MiB, path);
    CHECK_FALSE(std::filesystem::exists(aside));
    CHECK(has_pattern(machine.driver, block.data(), 1_MiB, 1));
    pause_and_resume(own, "model"); // keeps them on the host: the file is another one
    CHECK(has_pattern(machine.driver, block.data(), 1_MiB, 1));
}

TEST_CASE_FIXTURE(OnModel, "FileSource: a block begins with the file that was loaded last" * on_machines) {
    const std::string one = files.put("one", pattern(1_MiB, 1));
    const std::string two = files.put("two", pattern(1_MiB, 2));
    const Buffer<unsigned char> block{model, 2_MiB};
    model.load(block.data() + 1_MiB, 1_MiB, one);
    model.load(block.data(), 1_MiB, two);
    pause_and_resume(saver, "model");
    CHECK(has_pattern(machine.driver, block.data(), 1_MiB, 2));
    CHECK(has_pattern(machine.driver, block.data() + 1_MiB, 1_MiB, 1));
}

TEST_CASE("FileSource: a file that changed while its bytes were away is an error that names it; nothing is touched") {
    const Checked machine{nasty_machine};
    const ModelFiles files;
    MemorySaver saver{machine.driver};
    const Arena model = saver.arena("model", small_source());
    const Loaded block{files, model, 3_MiB};
    const Filled kept{machine.driver, model, 70'000, 5};
    saver.pause("model");
    const auto fails = [&](const char* why) {
        const std::uint64_t copies = machine.driver.calls(Call::copy_to_device);
        const std::string text = text_of<Error>([&] { saver.resume("model"); });
        CHECK_MESSAGE((contains(text, block.path) && contains(text, why)), text);
        CHECK(machine.driver.calls(Call::copy_to_device) == copies);
        CHECK(row_of(saver, "model").state == "paused");
        CHECK(row_of(saver, "model").mapped_bytes == 0);
    };
    const std::string aside = files.path("aside");
    std::filesystem::rename(block.path, aside);
    fails("ENOENT");
    files.put("model", pattern(3_MiB, 1)); // the same bytes, but unverified
    fails("no longer the file");
    std::filesystem::rename(aside, block.path);
    const auto time = std::filesystem::last_write_time(block.path);
    std::ofstream{block.path, std::ios::app} << 'x';
    fails("no longer the file");
    std::filesystem::resize_file(block.path, 3_MiB);
    fails("no longer the file");
    std::filesystem::last_write_time(block.path, time);
    if (::geteuid() != 0) {
        std::filesystem::permissions(block.path, std::filesystem::perms::none);
        fails("EACCES");
        std::filesystem::permissions(block.path, std::filesystem::perms::owner_all);
    }
    saver.resume("model"); // the file exists again
    CHECK((block.whole(machine.driver) && kept.whole()));

    // If the file never returns, the program may continue without the bytes.
    saver.pause("model");
    std::filesystem::remove(block.path);
    fails("ENOENT");
    saver.resume("model", {.bytes = Discard{}});
    model.load(block.data(), 3_MiB, files.put("other", pattern(3_MiB, 2)));
    pause_and_resume(saver, "model");
    CHECK(block.whole(machine.driver, 2));
}

TEST_CASE_FIXTURE(OnModel,
                  "FileSource: a file that was removed while its bytes were in memory costs host memory, and no bytes" *
                      on_machines) {
    const bool gone = either("gone", "another one");
    const std::string path = files.put("model", pattern(1_MiB, 1));
    const std::string stays = files.put("stays", pattern(1_MiB, 2));
    const Buffer<unsigned char> block{model, 2_MiB};
    model.load(block.data(), 1_MiB, path);
    model.load(block.data() + 1_MiB, 1_MiB, stays);
    if (gone) std::filesystem::remove(path);
    if (!gone) files.put("model", pattern(1_MiB, 1));
    for (int round = 0; round < 2; ++round) {
        CHECK(saver.pause("model").saved_bytes == 1_MiB); // from now on
        saver.resume("model");
        CHECK(has_pattern(machine.driver, block.data(), 1_MiB, 1));
        CHECK(has_pattern(machine.driver, block.data() + 1_MiB, 1_MiB, 2));
    }
    REQUIRE(told.texts(EventKind::fell_back).size() == 1);
    CHECK(contains(told.texts(EventKind::fell_back)[0], path));
}

TEST_CASE_FIXTURE(
    OnModel,
    "FileSource: invalidate while the tag is paused: bytes come from the file, and are saved from then on" * on_hosts) {
    const Loaded block{files, model, 1_MiB};
    const auto resume = [&] {
        saver.resume("model");
        CHECK(block.whole(machine.driver));
    };
    saver.pause("model");
    saver.invalidate(block.data() + 1000, 5000);
    resume();
    CHECK(saver.pause("model").saved_bytes == 5000);
    resume();
    saver.pause("model", {.bytes = HostBackup{}}); // another policy for one pause is for that pause
    resume();
    CHECK(saver.pause("model").saved_bytes == 5000);
    resume();
    saver.pause("model", {.bytes = HostBackup{}});
    const Bytes fresh(1000, 7);
    saver.write_backup(block.data() + 100'000, fresh.data(), fresh.size()); // these are not the file's any more
    saver.resume("model");
    CHECK(saver.pause("model").saved_bytes == 6000);
    saver.resume("model");
    CHECK(all_are(machine.driver, block.data() + 100'000, fresh.size(), 7));
}

TEST_CASE_FIXTURE(OnModel, "FileSource: write_backup takes bytes out of the file" * on_machines) {
    const Loaded block{files, model, 5'000'000};
    Bytes is = pattern(block.size(), 1);
    saver.pause("model");
    const std::pair<std::size_t, std::size_t> parts[] = {
        {0, 1}, {is.size() - 1, 1}, {4095, 2}, {100'001, 70'000}, {150'000, 2'000'000}, {100'000, 100'000}};
    for (const auto& [offset, count] : parts) {
        const Bytes fresh = pattern(count, offset + count);
        saver.write_backup(block.data() + offset, fresh.data(), count);
        std::memcpy(is.data() + offset, fresh.data(), count);
    }
    CHECK(row_of(saver, "model").backed_up_bytes == 2'050'004);
    const BackupView view = saver.backup_view(block.data() + 4095, 2);
    CHECK(std::memcmp(view.data(), is.data() + 4095, 2) == 0);
    const BackupView all = saver.backup_view(block.data(), is.size()); // a copy: some of it is in a file
    CHECK(std::memcmp(all.data(), is.data(), is.size()) == 0);
    for (int round = 0; round < 2; ++round) {
        saver.resume("model");
        CHECK(read_bytes(machine.driver, block.data(), is.size()) == is);
        saver.pause("model");
    }
}

TEST_CASE_FIXTURE(OnModel, "FileSource: room for bytes is not yet bytes that were saved") {
    const std::string path = files.put("model", pattern(4'000'000, 1));
    const Buffer<unsigned char> block{model, 4'000'000};
    pause_and_resume(saver, "model");
    model.load(block.data() + 1'000'000, 2'000'000, path); // the kept bytes beside it are discarded
    saver.prepare("model");
    CHECK_THROWS_AS((void)saver.backup_view(block.data() + 999'999, 10), Misuse);
    saver.pause("model");
    CHECK(saver.backup_view(block.data() + 999'999, 10).data() != nullptr);
}

TEST_CASE_FIXTURE(OnModel, "FileSource: misuse says why, and changes nothing") {
    const Loaded block{files, model, 1_MiB};
    const std::string& path = block.path;
    Buffer<unsigned char> freed{model, 1 << 20};
    const Buffer<unsigned char> backed{saver.arena("backed", HostBackup{}), 1 << 20};
    const Buffer<unsigned char> lost{saver.arena("lost", Discard{}), 1 << 20};
    const auto refused = [&](void* to, std::size_t count, const std::string& from, std::size_t offset,
                             const char* why) {
        check_says<Misuse>(why, [&] { saver.load(to, count, from, offset); });
    };
    refused(block.data(), 0, path, 0, "the size is 0");
    refused(block.data() + 1, 1_MiB, path, 0, "past the end");
    refused(block.data(), 1_MiB, path, 1, "has 1.00 MiB; 1.00 MiB at offset 1 extend past its end");
    refused(block.data(), 1, path, 1_MiB, "has 1.00 MiB");
    refused(block.data(), 1, path, ~std::size_t{0}, "has 1.00 MiB");
    refused(backed.data(), 1, path, 0, "its policy is \"host\", not FileSource");
    refused(lost.data(), 1, path, 0, "not FileSource");
    int mine = 0;
    refused(&mine, 4, path, 0, "no tag of this saver");
    unsigned char* const gone = freed.data();
    freed.reset();
    refused(gone, 4, path, 0, "no live block");
    for (const std::string& other : {files.path("nobody"), std::string{}, files.name, std::string{"/dev/zero"}}) {
        const std::string text = text_of<Error>([&] { saver.load(block.data(), 4096, other); });
        CHECK_MESSAGE(contains(text, other + ") failed: E"), text);
        CHECK(contains(text, "tag \"model\""));
    }
    CHECK_THROWS_AS(saver.invalidate(block.data(), 0), Misuse);
    CHECK_THROWS_AS(saver.invalidate(block.data() + 1, 1_MiB), Misuse);
    CHECK_THROWS_AS(saver.invalidate(&mine, 1), Misuse);
    CHECK_THROWS_AS(saver.invalidate(lost.data(), 1), Misuse);
    CHECK_NOTHROW(saver.invalidate(backed.data(), 1));
    CHECK(saver.pause("model").saved_bytes == 0); // all of it is still the file's
    refused(block.data(), 1, path, 0, "paused");
    saver.resume("model");
    CHECK(block.whole(machine.driver));
    saver.close();
    refused(block.data(), 1, path, 0, "");
}

TEST_CASE_FIXTURE(OnHost, "FileSource: with a saver of its own, and in a saver that is switched off") {
    const ModelFiles files;
    const Bytes bytes = pattern(3_MiB, 1);
    const std::string path = files.put("model", bytes);
    {
        TaggedArena alone{machine.driver, "alone", small_source()};
        auto* const block = static_cast<unsigned char*>(alone.allocate(3_MiB));
        alone.load(block, 3_MiB, path);
        alone.invalidate(block + 7, 100);
        CHECK(alone.pause().saved_bytes == 100);
        alone.resume();
        CHECK(read_bytes(machine.driver, block, 3_MiB) == bytes);
        CHECK_THROWS_AS(alone.load(block, 1, path, 3_MiB), Misuse);
    }
    MemorySaver off{machine.driver, {.enabled = false}};
    const Arena model = off.arena("model", FileSource{});
    const Buffer<unsigned char> block{model, 1 << 20};
    model.load(block.data() + 5, 70'000, path, 33);
    pause_and_resume(off, "model");
    model.invalidate(block.data(), 1);
    CHECK(read_bytes(machine.driver, block.data() + 5, 70'000) == part_of(bytes, 33, 70'000));
    CHECK_THROWS_AS(model.load(block.data(), 0, path), Misuse);
    CHECK_THROWS_AS(model.load(block.data() + 1, 1 << 20, path), Misuse);
    CHECK_THROWS_AS(model.load(block.data(), 1, path, 3_MiB), Misuse);
    CHECK_THROWS_AS(model.invalidate(block.data() + 1, 1 << 20), Misuse);
    CHECK_THROWS_AS(off.load(block.data(), 1, files.path("nobody")), DriverError);
}

TEST_CASE_FIXTURE(OnHost, "FileSource: switched off, resources that a load could not release are released later") {
    const ModelFiles files;
    Told told;
    MemorySaver off{machine.driver, {.enabled = false, .events = told.sink()}};
    const Loaded block{files, off.arena("model", FileSource{}), 1_MiB};
    for (const Call call : {Call::unpin_host, Call::unmap_host}) {
        CAPTURE(call_name(call));
        machine.driver.fail({.call = call, .lasting = Lasting::onwards});
        off.load(block.data(), 1_MiB, block.path); // the bytes are loaded
        CHECK(block.whole(machine.driver));
        machine.driver.heal();
        off.load(block.data(), 1_MiB, block.path);
        CHECK(machine.driver.host_bytes() == 0);
    }
    CHECK(!told.of(EventKind::ignored).empty());
    machine.driver.fail({.call = Call::unmap_host, .lasting = Lasting::onwards});
    off.load(block.data(), 1_MiB, block.path);
    CHECK(machine.driver.host_bytes() != 0);
    machine.driver.heal();
    off.close();
    CHECK(machine.driver.host_bytes() == 0);
}

TEST_CASE_FIXTURE(OnFiles,
                  "FileSource: a load that fails leaves the bytes in memory, or bytes that are saved" * on_machines) {
    const Call call = each_of({Call::open_source, Call::file_facts, Call::read_file, Call::copy_to_device,
                               Call::map_host, Call::populate_host, Call::record, Call::wait});
    const Bytes old = pattern(6_MiB, 1);
    const Bytes fresh = pattern(6_MiB, 2);
    const std::string second = files.put("second", fresh);
    const Arena model = saver.arena("model", FileSource{.threads = 2, .ring_bytes = 8_MiB, .retain = false});
    const Loaded block{files, model, 6_MiB};
    const Sampling sample = sampling().of(call_name(call));
    for (std::uint64_t nth = 1 + sample.first(3); nth <= 3; nth += sample.stride(3)) {
        CAPTURE(nth);
        machine.driver.fail({.call = call, .nth = nth});
        bool threw = false;
        try {
            model.load(block.data(), 6_MiB, second);
        } catch (const Error& error) {
            threw = true;
            CHECK_MESSAGE((call != Call::read_file || contains(error.what(), second)), error.what());
        }
        machine.driver.heal();
        const Bytes now = read_bytes(machine.driver, block.data(), 6_MiB);
        for (std::size_t at = 0; at < now.size(); at += 4096) {
            const auto are = [&](const Bytes& some) { return std::memcmp(&now[at], &some[at], 4096) == 0; };
            if (!are(old) && !are(fresh)) FAIL_CHECK(at);
        }
        pause_and_resume(saver, "model");
        CHECK((read_bytes(machine.driver, block.data(), 6_MiB) == now || call == Call::copy_to_device));
        if (!threw) CHECK(now == fresh);
        model.load(block.data(), 6_MiB, block.path);
        CHECK(saver.pause("model").saved_bytes == 0);
        saver.resume("model");
        CHECK(block.whole(machine.driver));
    }
}

TEST_CASE_FIXTURE(
    OnFiles,
    "FileSource: a file that is truncated or written to while it is read is an error, and one that is unreadable") {
    const bool cut = either("cut", "written to");
    const Loaded block{files, saver.arena("model", FileSource{.threads = 1, .ring_bytes = 4_MiB}), 6_MiB};
    const auto time = std::filesystem::last_write_time(block.path);
    const auto write = [&](const Bytes& bytes) { // in place
        std::ofstream{block.path, std::ios::in | std::ios::out | std::ios::binary}.write(
            reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    };
    const auto repair = [&] {
        write(pattern(6_MiB, 1));
        std::filesystem::last_write_time(block.path, time);
    };
    saver.pause("model");
    std::atomic<bool> once{false};
    machine.driver.on_call([&](const CallRecord& call) {
        if (call.call != Call::read_file || once.exchange(true)) return;
        if (cut) std::filesystem::resize_file(block.path, 1_MiB);
        if (!cut) write({1, 2, 3});
    });
    for (int i = 0; i < 2; ++i) {
        once = false;
        CHECK_THROWS_AS(saver.resume("model"), SourceChanged);
        CHECK(row_of(saver, "model").state == "paused");
    }
    repair();
    once = false;
    if (!cut) CHECK_THROWS_AS((void)saver.backup_view(block.data(), 6_MiB), SourceChanged);
    machine.driver.on_call({});
    repair();
    machine.driver.fail({.call = Call::read_file});
    check_says<Error>(block.path, [&] { saver.resume("model"); });
    saver.resume("model");
    CHECK(block.whole(machine.driver));
}

TEST_CASE_FIXTURE(OnFiles, "FileSource: a streamed resume restores the ranges of .first first" * on_machines) {
    constexpr std::size_t layer = 3_MiB;
    const Loaded block{files, saver.arena("model", FileSource{.threads = 1, .ring_bytes = 4_MiB}), 8 * layer};
    const auto at = [&](std::size_t i) { return block.data() + i * layer; };
    saver.pause("model");
    std::vector<Address> order; // one thread copies
    machine.driver.on_call([&](const CallRecord& call) {
        if (call.call == Call::copy_to_device) order.push_back(call.address);
    });
    {
        const Arrival coming = saver.resume_async("model", {.first = {{at(5), layer}, {at(1), layer}}});
        coming.wait(at(5), layer);
        CHECK(read_bytes(machine.driver, at(5), layer) == part_of(pattern(8 * layer, 1), 5 * layer, layer));
        coming.wait();
    }
    machine.driver.on_call({});
    const auto position = [&](std::size_t i) { return std::find(order.begin(), order.end(), address_of(at(i))); };
    CHECK(position(5) == order.begin());
    CHECK(position(5) < position(1));
    CHECK(position(1) < position(0));
    CHECK(position(0) != order.end());
    CHECK(block.whole(machine.driver));

    saver.pause("model"); // a missing file is reported before any bytes are in flight
    std::filesystem::rename(block.path, files.path("aside"));
    CHECK_THROWS_AS((void)saver.resume_async("model"), DriverError);
    std::filesystem::rename(files.path("aside"), block.path);
    saver.resume_async("model").wait();
    CHECK(block.whole(machine.driver));
}

TEST_CASE_FIXTURE(OnFiles, "FileSource: bytes that are loaded need no host memory any more" * on_machines) {
    const std::string path = files.put("model", pattern(8_MiB, 1));
    const Arena model = saver.arena("model", FileSource{.threads = 1, .ring_bytes = 4_MiB});
    constexpr std::size_t bytes = 8'000'001; // the padding behind it is not saved either
    const Filled block{machine.driver, model, bytes, 3};
    CHECK(saver.pause("model").saved_bytes >= bytes);
    saver.resume("model");
    model.load(block.data(), bytes, path);
    CHECK(saver.pause("model").saved_bytes == 0);
    (void)saver.trim();
    CHECK(machine.driver.host_bytes() == 0);
    CHECK(row_of(saver, "model").backed_up_bytes == 0);
    saver.resume("model");
    CHECK(read_bytes(machine.driver, block.data(), bytes) == part_of(pattern(8_MiB, 1), 0, bytes));
}
} // namespace backup_file_source_test
