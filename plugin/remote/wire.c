#include "wire.h"

#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- TLS: whom to trust ---- */

static int refuse(SSL_CTX *context, const char *what, const char *file, char *message, size_t bytes) {
  const char *why = ERR_reason_error_string(ERR_peek_last_error());
  snprintf(message, bytes, "%s %s: %s", what, file ? file : "(the system's)", why ? why : "cannot be used");
  SSL_CTX_free(context);
  return GAP_EIO;
}

int gap__wire_context(const gap_remote_options *o, struct ssl_ctx_st **out, char *message, size_t bytes) {
  /* Our thread may be in the middle of something when the program exits. */
  OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, NULL);
  ERR_clear_error();
  SSL_CTX *context = SSL_CTX_new(TLS_client_method());
  if (!context) return snprintf(message, bytes, "no memory for TLS"), GAP_ENOMETA;
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  int trust =
      o->ca_file ? SSL_CTX_load_verify_locations(context, o->ca_file, NULL) : SSL_CTX_set_default_verify_paths(context);
  if (trust != 1) return refuse(context, "CA file", o->ca_file, message, bytes);
  if (o->certificate_file && SSL_CTX_use_certificate_chain_file(context, o->certificate_file) != 1)
    return refuse(context, "certificate", o->certificate_file, message, bytes);
  const char *key = o->key_file ? o->key_file : o->certificate_file;
  if (key && (SSL_CTX_use_PrivateKey_file(context, key, SSL_FILETYPE_PEM) != 1 || !SSL_CTX_check_private_key(context)))
    return refuse(context, "key", key, message, bytes);
  return *out = context, 0;
}

void gap__wire_context_free(struct ssl_ctx_st *context) { SSL_CTX_free(context); }

/* ---- connecting ---- */

static int broken(struct gap__wire *w, const char *why) {
  snprintf(w->reason, sizeof w->reason, "%s", why);
  return GAP__WIRE_BROKEN;
}

int gap__wire_connect(struct gap__wire *w, const struct addrinfo *to) {
  int one = 1;
  w->fd = socket(to->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (w->fd < 0) return broken(w, strerror(errno));
  setsockopt(w->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  setsockopt(w->fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
  if (connect(w->fd, to->ai_addr, to->ai_addrlen) == 0 || errno == EINPROGRESS) return 0;
  return broken(w, strerror(errno));
}

int gap__wire_connected(struct gap__wire *w) {
  int error = 0;
  socklen_t bytes = sizeof error;
  if (getsockopt(w->fd, SOL_SOCKET, SO_ERROR, &error, &bytes)) error = errno;
  return error ? broken(w, strerror(error)) : 0;
}

static bool is_address(const char *host) {
  struct in6_addr any;
  return inet_pton(AF_INET, host, &any) == 1 || inet_pton(AF_INET6, host, &any) == 1;
}

int gap__wire_secure(struct gap__wire *w, struct ssl_ctx_st *context, const char *host) {
  w->ssl = SSL_new(context);
  if (!w->ssl || SSL_set_fd(w->ssl, w->fd) != 1) return broken(w, "no memory for TLS");
  int named = is_address(host) ? X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(w->ssl), host)
                               : SSL_set1_host(w->ssl, host) && SSL_set_tlsext_host_name(w->ssl, host);
  if (named != 1) return broken(w, "the host is no name for TLS");
  SSL_set_connect_state(w->ssl);
  w->wanted = POLLOUT;
  return 0;
}

/* What OpenSSL's return value means: 0 to wait, else broken. */
static int judge(struct gap__wire *w, int rc) {
  int error = SSL_get_error(w->ssl, rc), saved = errno;
  long trust = SSL_get_verify_result(w->ssl);
  if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) {
    w->wanted = error == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT;
    return 0;
  }
  if (trust != X509_V_OK) {
    snprintf(w->reason, sizeof w->reason, "its certificate: %s", X509_verify_cert_error_string(trust));
    return GAP__WIRE_BROKEN;
  }
  const char *why = ERR_reason_error_string(ERR_peek_error());
  if (error == SSL_ERROR_SYSCALL) return broken(w, saved ? strerror(saved) : "the connection was closed");
  snprintf(w->reason, sizeof w->reason, "TLS: %s", why ? why : "the connection was closed");
  return GAP__WIRE_BROKEN;
}

int gap__wire_shake(struct gap__wire *w) {
  ERR_clear_error();
  w->wanted = 0;
  errno = 0;
  int rc = SSL_do_handshake(w->ssl);
  return rc == 1 ? 1 : judge(w, rc);
}

/* ---- bytes ---- */

ssize_t gap__wire_read(struct gap__wire *w, void *buffer, size_t bytes) {
  if (w->ssl) {
    ERR_clear_error();
    w->wanted = 0;
    errno = 0;
    int got = SSL_read(w->ssl, buffer, bytes < INT_MAX ? (int)bytes : INT_MAX);
    return got > 0 ? got : judge(w, got);
  }
  ssize_t got = recv(w->fd, buffer, bytes, 0);
  if (got > 0) return got;
  if (got == 0) return broken(w, "the server closed the connection");
  return errno == EAGAIN || errno == EINTR ? 0 : broken(w, strerror(errno));
}

ssize_t gap__wire_write(struct gap__wire *w, const struct iovec *parts, int count) {
  if (w->ssl) {
    ERR_clear_error();
    w->wanted = 0;
    errno = 0;
    int put = SSL_write(w->ssl, parts->iov_base, parts->iov_len < INT_MAX ? (int)parts->iov_len : INT_MAX);
    return put > 0 ? put : judge(w, put);
  }
  struct msghdr message = {.msg_iov = (struct iovec *)parts, .msg_iovlen = (size_t)count};
  ssize_t put = sendmsg(w->fd, &message, MSG_NOSIGNAL);
  if (put >= 0) return put;
  return errno == EAGAIN || errno == EINTR ? 0 : broken(w, strerror(errno));
}

bool gap__wire_pending(const struct gap__wire *w) { return w->ssl && SSL_pending(w->ssl) > 0; }

void gap__wire_close(struct gap__wire *w) {
  if (w->ssl) SSL_free(w->ssl); /* without a farewell: the server may be stopped */
  if (w->fd >= 0) {
    shutdown(w->fd, SHUT_RDWR);
    close(w->fd);
  }
  w->ssl = NULL;
  w->fd = -1;
  w->wanted = 0;
}
