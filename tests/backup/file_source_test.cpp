// Bytes sourced from a file: loaded from it, never saved, read again at every resume.
#include "backup/backup_support.hpp"
#include "backup/file_source_support.hpp"
#include "support/sampling.hpp"

namespace backup_file_source_test {
using namespace test;
using Bytes = std::vector<unsigned char>;

/// Small buffers, so that a few megabytes are many pieces.
FileSource small_source(unsigned threads = 3) { return {.threads = threads, .ring_bytes = threads * 4_MiB}; }

struct OnFiles : OnSaver {
    const ModelFiles files{};
};

struct OnModel : OnFiles {
    const Arena model = saver.arena("model", small_source());
};

TEST_CASE_FIXTURE(OnFiles, "FileSource: whole blocks save nothing and take only the ring" * on_machines) {
    constexpr std::size_t size = 3'999'999;
    const Bytes bytes = pattern(size, 1);
    const std::string path = files.put("model", bytes);
    const Arena model = saver.arena("model", FileSource{.threads = 1, .ring_bytes = 4_MiB, .retain = false});
    const Buffer<unsigned char> block{model, size};
    model.load(block.data(), size, path);
    CHECK(machine.driver.host_bytes() == 0);
    const Report paused = saver.pause("model");
    CHECK(paused.saved_bytes == 0);
    CHECK(machine.driver.host_bytes() == 0);
    CHECK(row_of(saver, "model").backed_up_bytes == 0);
    CHECK(saver.resume("model").restored_bytes == size);
    CHECK(machine.driver.host_bytes() == 0);
    CHECK(machine.driver.outstanding().files == 0);
    CHECK(machine.driver.calls(Call::write_file) == 0);
    CHECK(read_bytes(machine.driver, block.data(), size) == bytes);
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
    const auto load = [&](std::size_t to, std::size_t count, const std::string& path, const Bytes& from,
                          std::size_t offset) {
        model.load(block.data() + to, count, path, offset);
        std::memcpy(is.data() + to, from.data() + offset, count);
    };
    for (std::size_t i = 0; i < 40; ++i)
        load(i * 50'001, 40'003, i % 3 != 0 ? first : second, i % 3 != 0 ? one : two, i * 17);
    load(3'000'001, 1'500'000, second, two, 499'999);
    load(3'100'000, 300'000, first, one, 1);   // within the loaded range: the later one wins
    load(3'399'000, 900'000, second, two, 77); // across an end
    const auto check = [&] { CHECK(read_bytes(machine.driver, block.data(), size) == is); };
    check();
    const auto cycle = [&] {
        const Report report = saver.pause("model");
        saver.resume("model");
        check();
        return report.saved_bytes;
    };
    const std::size_t saved = cycle();
    CHECK(saved > 0);
    CHECK(saved < size - 3'000'000);
    CHECK(cycle() == saved);

    // Changed bytes that were invalidated are kept; unreported changes are replaced from the file.
    const Bytes fresh = pattern(100'000, 9);
    write_bytes(machine.driver, block.data() + 3'050'000, fresh);
    std::memcpy(is.data() + 3'050'000, fresh.data(), fresh.size());
    model.invalidate(block.data() + 3'050'000, fresh.size());
    CHECK(cycle() == saved + fresh.size());
    // Already kept: needs no further invalidate.
    write_bytes(machine.driver, block.data() + 3'050'001, pattern(50'000, 10));
    const Bytes again = pattern(50'000, 10);
    std::memcpy(is.data() + 3'050'001, again.data(), again.size());
    CHECK(cycle() == saved + fresh.size());
    load(3'050'000, 100'000, first, one, 5); // until it is loaded again
    CHECK(cycle() == saved);
    write_bytes(machine.driver, block.data() + 3'050'000, fresh);
    pause_and_resume(saver, "model");
    check();
    saver.invalidate("model"); // all of it
    write_bytes(machine.driver, block.data(), is = pattern(size, 20));
    CHECK(cycle() >= size);
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
    const Bytes bytes = pattern(3_MiB, 1);
    const std::string path = files.put("model", bytes);
    MemorySaver saver{machine.driver};
    const Arena model = saver.arena("model", small_source());
    const Buffer<unsigned char> block{model, 3_MiB};
    const Buffer<unsigned char> kept{model, 70'000};
    write_pattern(machine.driver, kept.data(), 70'000, 5);
    model.load(block.data(), 3_MiB, path);
    saver.pause("model");
    const auto fails = [&](const char* why) {
        const std::uint64_t copies = machine.driver.calls(Call::copy_to_device);
        const std::string text = text_of<Error>([&] { saver.resume("model"); });
        CHECK_MESSAGE((contains(text, path) && contains(text, why)), text);
        CHECK(machine.driver.calls(Call::copy_to_device) == copies);
        CHECK(row_of(saver, "model").state == "paused");
        CHECK(row_of(saver, "model").mapped_bytes == 0);
    };
    const std::string aside = files.path("aside");
    std::filesystem::rename(path, aside);
    fails("ENOENT");
    files.put("model", bytes); // the same bytes, but unverified
    fails("no longer the file");
    std::filesystem::rename(aside, path);
    const auto time = std::filesystem::last_write_time(path);
    {
        std::ofstream more{path, std::ios::app};
        more << 'x';
    }
    fails("no longer the file");
    std::filesystem::resize_file(path, 3_MiB);
    fails("no longer the file");
    std::filesystem::last_write_time(path, time);
    if (::geteuid() != 0) {
        std::filesystem::permissions(path, std::filesystem::perms::none);
        fails("EACCES");
        std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    }
    saver.resume("model"); // the file exists again
    CHECK(read_bytes(machine.driver, block.data(), 3_MiB) == bytes);
    CHECK(has_pattern(machine.driver, kept.data(), 70'000, 5));

    // If the file never returns, the program may continue without the bytes.
    saver.pause("model");
    std::filesystem::remove(path);
    fails("ENOENT");
    saver.resume("model", {.bytes = Discard{}});
    const std::string other = files.put("other", pattern(3_MiB, 2));
    model.load(block.data(), 3_MiB, other);
    pause_and_resume(saver, "model");
    CHECK(has_pattern(machine.driver, block.data(), 3_MiB, 2));
}

TEST_CASE_FIXTURE(OnMachine,
                  "FileSource: a file that was removed while its bytes were in memory costs host memory, and no bytes" *
                      on_machines) {
    const ModelFiles files;
    const std::string path = files.put("model", pattern(1_MiB, 1));
    const std::string stays = files.put("stays", pattern(1_MiB, 2));
    Told told;
    MemorySaver saver{machine.driver, {.events = told.sink()}};
    const Arena model = saver.arena("model", small_source());
    const Buffer<unsigned char> block{model, 2_MiB};
    model.load(block.data(), 1_MiB, path);
    model.load(block.data() + 1_MiB, 1_MiB, stays);
    SUBCASE("gone") { std::filesystem::remove(path); }
    SUBCASE("another one") { files.put("model", pattern(1_MiB, 1)); }
    CHECK(saver.pause("model").saved_bytes == 1_MiB);
    const std::vector<Event> events = told.of(EventKind::fell_back);
    REQUIRE(events.size() == 1);
    CHECK(contains(events[0].text, path));
    saver.resume("model");
    CHECK(has_pattern(machine.driver, block.data(), 1_MiB, 1));
    CHECK(has_pattern(machine.driver, block.data() + 1_MiB, 1_MiB, 2));
    CHECK(saver.pause("model").saved_bytes == 1_MiB); // from now on
    saver.resume("model");
    CHECK(told.of(EventKind::fell_back).size() == 1);
}

TEST_CASE("FileSource: invalidate while the tag is paused: bytes come from the file, and are saved from then on") {
    const Checked machine{nasty_machine};
    const ModelFiles files;
    const Bytes bytes = pattern(1_MiB, 1);
    const std::string path = files.put("model", bytes);
    MemorySaver saver{machine.driver};
    const Arena model = saver.arena("model", small_source());
    const Buffer<unsigned char> block{model, 1_MiB};
    model.load(block.data(), 1_MiB, path);
    saver.pause("model");
    saver.invalidate(block.data() + 1000, 5000);
    saver.resume("model");
    CHECK(read_bytes(machine.driver, block.data(), 1_MiB) == bytes);
    CHECK(saver.pause("model").saved_bytes == 5000);
    saver.resume("model");
    CHECK(read_bytes(machine.driver, block.data(), 1_MiB) == bytes);
    saver.pause("model", {.bytes = HostBackup{}}); // another policy for one pause: they are kept from then on
    saver.resume("model");
    CHECK(saver.pause("model").saved_bytes == 1_MiB);
    saver.resume("model");
    CHECK(read_bytes(machine.driver, block.data(), 1_MiB) == bytes);
}

TEST_CASE_FIXTURE(OnModel, "FileSource: write_backup takes bytes out of the file" * on_machines) {
    Bytes is = pattern(5'000'000, 1);
    const std::string path = files.put("model", is);
    const Buffer<unsigned char> block{model, is.size()};
    model.load(block.data(), is.size(), path);
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
    saver.resume("model");
    CHECK(read_bytes(machine.driver, block.data(), is.size()) == is);
    pause_and_resume(saver, "model");
    CHECK(read_bytes(machine.driver, block.data(), is.size()) == is);
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
    const Bytes bytes = pattern(1_MiB, 1);
    const std::string path = files.put("model", bytes);
    const Buffer<unsigned char> block{model, 1 << 20};
    Buffer<unsigned char> freed{model, 1 << 20};
    const Buffer<unsigned char> backed{saver.arena("backed", HostBackup{}), 1 << 20};
    const Buffer<unsigned char> lost{saver.arena("lost", Discard{}), 1 << 20};
    model.load(block.data(), 1_MiB, path);
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
    CHECK(read_bytes(machine.driver, block.data(), 1_MiB) == bytes);
    saver.close();
    refused(block.data(), 1, path, 0, "");
}

TEST_CASE_FIXTURE(OnHost, "FileSource: without a saver, and in a saver that is switched off") {
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
    const std::string path = files.put("model", pattern(1_MiB, 1));
    Told told;
    MemorySaver off{machine.driver, {.enabled = false, .events = told.sink()}};
    const Buffer<unsigned char> block{off.arena("model", FileSource{}), 1_MiB};
    for (const Call call : {Call::unpin_host, Call::unmap_host}) {
        CAPTURE(call_name(call));
        machine.driver.fail({.call = call, .lasting = Lasting::onwards});
        off.load(block.data(), 1_MiB, path); // the bytes are loaded
        CHECK(has_pattern(machine.driver, block.data(), 1_MiB, 1));
        machine.driver.heal();
        off.load(block.data(), 1_MiB, path);
        CHECK(machine.driver.host_bytes() == 0);
    }
    CHECK(!told.of(EventKind::ignored).empty());
    machine.driver.fail({.call = Call::unmap_host, .lasting = Lasting::onwards});
    off.load(block.data(), 1_MiB, path);
    CHECK(machine.driver.host_bytes() != 0);
    machine.driver.heal();
    off.close();
    CHECK(machine.driver.host_bytes() == 0);
}

TEST_CASE_FIXTURE(OnFiles,
                  "FileSource: a load that fails leaves the bytes in memory, or bytes that are saved" * on_machines) {
    const Bytes old = pattern(6_MiB, 1);
    const Bytes fresh = pattern(6_MiB, 2);
    const std::string first = files.put("first", old);
    const std::string second = files.put("second", fresh);
    const Arena model = saver.arena("model", FileSource{.threads = 2, .ring_bytes = 8_MiB, .retain = false});
    const Buffer<unsigned char> block{model, 6_MiB};
    model.load(block.data(), 6_MiB, first);
    for (const Call call : {Call::open_source, Call::file_facts, Call::read_file, Call::copy_to_device, Call::map_host,
                            Call::populate_host, Call::record, Call::wait}) {
        const Sampling sample = sampling().of(call_name(call));
        for (std::uint64_t nth = 1 + sample.first(3); nth <= 3; nth += sample.stride(3)) {
            CAPTURE(call_name(call));
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
            model.load(block.data(), 6_MiB, first);
            CHECK(saver.pause("model").saved_bytes == 0);
            saver.resume("model");
            CHECK(read_bytes(machine.driver, block.data(), 6_MiB) == old);
        }
    }
}

TEST_CASE_FIXTURE(
    OnFiles,
    "FileSource: a file that is truncated or written to while it is read is an error, and one that is unreadable") {
    const Bytes bytes = pattern(6_MiB, 1);
    const std::string path = files.put("model", bytes);
    const Arena model = saver.arena("model", FileSource{.threads = 1, .ring_bytes = 4_MiB});
    const Buffer<unsigned char> block{model, 6_MiB};
    model.load(block.data(), 6_MiB, path);
    const auto time = std::filesystem::last_write_time(path);
    saver.pause("model");
    std::atomic<bool> once{false};
    bool cut = false;
    SUBCASE("cut") { cut = true; }
    SUBCASE("written to") {}
    machine.driver.on_call([&](const CallRecord& call) {
        if (call.call != Call::read_file || once.exchange(true)) return;
        if (cut) return std::filesystem::resize_file(path, 1_MiB);
        std::ofstream{path, std::ios::in | std::ios::out}.write("other", 5);
    });
    const auto repair = [&] { // in place
        std::ofstream{path, std::ios::in | std::ios::out | std::ios::binary}.write(
            reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
        std::filesystem::last_write_time(path, time);
    };
    CHECK_THROWS_AS(saver.resume("model"), SourceChanged);
    CHECK(row_of(saver, "model").state == "paused");
    once = false;
    CHECK_THROWS_AS(saver.resume("model"), SourceChanged);
    repair();
    once = false;
    if (!cut) CHECK_THROWS_AS((void)saver.backup_view(block.data(), 6_MiB), SourceChanged);
    machine.driver.on_call({});
    repair();
    machine.driver.fail({.call = Call::read_file});
    CHECK(contains(text_of<Error>([&] { saver.resume("model"); }), path));
    saver.resume("model");
    CHECK(read_bytes(machine.driver, block.data(), 6_MiB) == bytes);
}

TEST_CASE_FIXTURE(OnFiles, "FileSource: a streamed resume restores the ranges of .first first" * on_machines) {
    constexpr std::size_t layer = 3_MiB;
    const Bytes bytes = pattern(8 * layer, 1);
    const std::string path = files.put("model", bytes);
    const Arena model = saver.arena("model", FileSource{.threads = 1, .ring_bytes = 4_MiB});
    const Buffer<unsigned char> block{model, 8 * layer};
    model.load(block.data(), 8 * layer, path);
    saver.pause("model");
    std::vector<Address> order; // one thread copies
    machine.driver.on_call([&](const CallRecord& call) {
        if (call.call == Call::copy_to_device) order.push_back(call.address);
    });
    {
        const Arrival coming =
            saver.resume_async("model", {.first = {{block.data() + 5 * layer, layer}, {block.data() + layer, layer}}});
        coming.wait(block.data() + 5 * layer, layer);
        CHECK(read_bytes(machine.driver, block.data() + 5 * layer, layer) == part_of(bytes, 5 * layer, layer));
        coming.wait();
    }
    machine.driver.on_call({});
    REQUIRE(order.size() > 4);
    CHECK(order[0] == test::address_of(block.data()) + 5 * layer);
    const auto position = [&](std::size_t index) {
        return std::find(order.begin(), order.end(), test::address_of(block.data()) + index * layer) - order.begin();
    };
    CHECK(position(5) < position(1));
    CHECK(position(1) < position(0));
    CHECK(read_bytes(machine.driver, block.data(), 8 * layer) == bytes);

    saver.pause("model"); // a missing file is reported before any bytes are in flight
    std::filesystem::rename(path, files.path("aside"));
    CHECK_THROWS_AS((void)saver.resume_async("model"), DriverError);
    std::filesystem::rename(files.path("aside"), path);
    saver.resume_async("model").wait();
    CHECK(read_bytes(machine.driver, block.data(), 8 * layer) == bytes);
}

TEST_CASE_FIXTURE(OnFiles, "FileSource: bytes that are loaded need no host memory any more" * on_machines) {
    const std::string path = files.put("model", pattern(8_MiB, 1));
    const Arena model = saver.arena("model", FileSource{.threads = 1, .ring_bytes = 4_MiB});
    constexpr std::size_t bytes = 8'000'001; // the padding behind it is not saved either
    const Buffer<unsigned char> block{model, bytes};
    write_pattern(machine.driver, block.data(), bytes, 3);
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
