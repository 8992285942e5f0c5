// What programs that use memsaver do: allocate, pause, resume, and verify their bytes. Uses a GPU if there is one.
#include <memsaver/memsaver.hpp>

#include <cstddef>
#include <iostream>
#include <vector>

using namespace memsaver;

namespace {

template <class D>
bool keeps_its_bytes(const D& driver) {
    std::vector<unsigned char> written(3_MiB);
    for (std::size_t i = 0; i < written.size(); ++i) written[i] = static_cast<unsigned char>(i * 7 + i / 251);
    std::vector<unsigned char> read(written.size());

    MemorySaver saver{driver};
    const Arena arena = saver.arena("consumer", HostBackup{});
    void* const block = arena.allocate(written.size());
    const auto address = reinterpret_cast<Address>(block);
    StreamRef stream;
    check(driver.open_stream(stream), "open a stream");
    check(driver.copy_to_device(address, written.data(), written.size(), stream), "write");
    const Report paused = saver.pause("consumer");
    const bool away = saver.usage().begin()->state == "paused" && paused.released_bytes >= written.size();
    const Report resumed = saver.resume("consumer");
    check(driver.copy_to_host(read.data(), address, read.size(), stream), "read");
    check(driver.drain(), "wait");
    check(driver.close_stream(stream), "close a stream");
    arena.deallocate(block);
    std::cout << driver.name() << ": " << paused << "; " << resumed << '\n';
    return away && read == written;
}

} // namespace

int main() {
    std::cout << "memsaver " << version.major << '.' << version.minor << '\n';
    const bool good = with_default_driver([](const auto& driver) { return keeps_its_bytes(driver); });
    return good && version != Version{} ? 0 : 1;
}
