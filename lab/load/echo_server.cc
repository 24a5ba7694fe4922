#include "load/echo_server.h"

#include <netinet/in.h>
#include <signal.h>
#include <uv.h>

#include <list>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"

namespace muster::load {

namespace {

class EchoServer {
 public:
  Status Run(const std::function<void(uint16_t port)>& ready) {
    uv_loop_init(&loop_);
    uv_tcp_init(&loop_, &listener_);
    listener_.data = this;
    Status outcome = Listen(ready);
    if (outcome) uv_run(&loop_, UV_RUN_DEFAULT);
    uv_walk(
        &loop_,
        [](uv_handle_t* handle, void*) {
          if (!uv_is_closing(handle)) uv_close(handle, nullptr);
        },
        nullptr);
    uv_run(&loop_, UV_RUN_DEFAULT);
    uv_loop_close(&loop_);
    return outcome;
  }

 private:
  struct Peer {
    uv_tcp_t tcp{};
    EchoServer* server = nullptr;
    std::list<Peer>::iterator self;
  };

  Status Listen(const std::function<void(uint16_t port)>& ready) {
    sockaddr_in address{};
    uv_ip4_addr("127.0.0.1", 0, &address);
    int size = sizeof address;
    int failure = uv_tcp_bind(&listener_, reinterpret_cast<sockaddr*>(&address), 0);
    if (failure == 0) {
      failure = uv_listen(reinterpret_cast<uv_stream_t*>(&listener_), 128,
                          [](uv_stream_t* from, int status) {
                            if (status == 0) static_cast<EchoServer*>(from->data)->Accept();
                          });
    }
    if (failure == 0)
      failure = uv_tcp_getsockname(&listener_, reinterpret_cast<sockaddr*>(&address), &size);
    if (failure != 0) {
      return Error{Code::kUnavailable,
                   Concat("echo server: ", std::string_view(uv_strerror(failure)))};
    }
    const auto stop = [](uv_signal_t* signal, int) { uv_stop(signal->loop); };
    for (uv_signal_t* signal : {&terminate_, &interrupt_}) uv_signal_init(&loop_, signal);
    uv_signal_start(&terminate_, stop, SIGTERM);
    uv_signal_start(&interrupt_, stop, SIGINT);
    ready(ntohs(address.sin_port));
    return Ok();
  }

  void Accept() {
    Peer& peer = peers_.emplace_back();
    peer.server = this;
    peer.self = std::prev(peers_.end());
    peer.tcp.data = &peer;
    uv_tcp_init(&loop_, &peer.tcp);
    uv_accept(reinterpret_cast<uv_stream_t*>(&listener_),
              reinterpret_cast<uv_stream_t*>(&peer.tcp));
    uv_tcp_nodelay(&peer.tcp, 1);
    uv_read_start(
        reinterpret_cast<uv_stream_t*>(&peer.tcp),
        [](uv_handle_t* handle, size_t, uv_buf_t* into) {
          std::vector<char>& buffer = static_cast<Peer*>(handle->data)->server->buffer_;
          *into = uv_buf_init(buffer.data(), static_cast<unsigned>(buffer.size()));
        },
        [](uv_stream_t* from, ssize_t count, const uv_buf_t* bytes) {
          static_cast<Peer*>(from->data)
              ->server->OnRead(*static_cast<Peer*>(from->data), count, bytes->base);
        });
  }

  void OnRead(Peer& peer, ssize_t count, char* bytes) {
    if (count > 0) {
      // The only client sends little and reads at once, so every write fits. If one did not, the
      // missing bytes would be noticed.
      const uv_buf_t reply = uv_buf_init(bytes, static_cast<unsigned>(count));
      if (uv_try_write(reinterpret_cast<uv_stream_t*>(&peer.tcp), &reply, 1) == count) return;
    }
    if (count == 0) return;
    uv_close(reinterpret_cast<uv_handle_t*>(&peer.tcp), [](uv_handle_t* handle) {
      auto* gone = static_cast<Peer*>(handle->data);
      gone->server->peers_.erase(gone->self);
    });
  }

  uv_loop_t loop_{};
  uv_tcp_t listener_{};
  uv_signal_t terminate_{};
  uv_signal_t interrupt_{};
  std::list<Peer> peers_;
  std::vector<char> buffer_ = std::vector<char>(64 * 1024);
};

}  // namespace

Status RunEchoServer(const std::function<void(uint16_t port)>& ready) {
  return EchoServer().Run(ready);
}

}  // namespace muster::load
