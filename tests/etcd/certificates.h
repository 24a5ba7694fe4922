// Certificates for a test, made by openssl in a folder of their own.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "etcd/cluster.h"
#include "support/temp_dir.h"

namespace muster::test {

class Certificates {
 public:
  /// With an authority of this name.
  explicit Certificates(const std::string& name = "authority") {
    OpenSsl({"req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
             "-days", "2", "-subj", "/CN=" + name, "-keyout", File("ca.key"), "-out", ca()});
  }

  std::string ca() const { return File("ca.pem"); }
  std::string cert(const std::string& name) const { return File(name + ".pem"); }
  std::string key(const std::string& name) const { return File(name + ".key"); }

  /// A certificate for 127.0.0.1 and localhost, or for `host`; `days` below 0: expired.
  void Issue(const std::string& name, int days = 2, const std::string& host = "") {
    OpenSsl({"req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj",
             "/CN=" + name, "-keyout", key(name), "-out", File(name + ".csr")});
    WriteFile(File(name + ".ext"), (host.empty() ? "subjectAltName=IP:127.0.0.1,DNS:localhost\n"
                                                 : "subjectAltName=DNS:" + host + "\n") +
                                       "extendedKeyUsage=serverAuth,clientAuth\n");
    OpenSsl({"x509", "-req", "-in", File(name + ".csr"), "-CA", ca(), "-CAkey", File("ca.key"),
             "-CAcreateserial", "-days", std::to_string(days), "-extfile", File(name + ".ext"),
             "-out", cert(name)});
  }

 private:
  std::string File(const std::string& name) const { return dir_.File(name); }
  static void OpenSsl(std::vector<std::string> words) {
    words.insert(words.begin(), "openssl");
    const Ran ran = RunCommand(words);
    if (ran.status != 0) throw std::runtime_error("openssl: " + ran.output);
  }

  const TempDir dir_;
};

}  // namespace muster::test
