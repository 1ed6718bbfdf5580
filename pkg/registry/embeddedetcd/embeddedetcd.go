// Package embeddedetcd runs one etcd member inside the process, for systems
// that bring no etcd of their own.
//
//	Open(dir, pki) -> a loopback port, mutual TLS -> Endpoint() -> Start
package embeddedetcd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/isthmus-dev/isthmus/pkg/registry/pki"
)

const (
	quotaBytes   = 8 << 30
	startTimeout = 60 * time.Second
)

// Server is an etcd.
type Server struct {
	etcd     *embed.Etcd // nil until started
	dir      string
	config   *embed.Config
	endpoint string
	lock     *os.File
}

// Open takes the store under dir for this process. Only one may use a folder at
// a time.
func Open(ctx context.Context, dir string, files pki.Files) (*Server, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create the etcd folder: %w", err)
	}
	lock, err := acquire(filepath.Join(dir, "lock"))
	if err != nil {
		return nil, err
	}
	cfg, endpoint, err := configuration(ctx, dir, files)
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return &Server{dir: dir, config: cfg, endpoint: endpoint, lock: lock}, nil
}

// Start waits until the store serves. What has failed is to be stopped, too.
func (s *Server) Start(ctx context.Context) error {
	etcd, err := embed.StartEtcd(s.config)
	if err != nil {
		return fmt.Errorf("start the embedded etcd in %s: %w", s.dir, err)
	}
	s.etcd = etcd
	timeout, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	select {
	case <-etcd.Server.ReadyNotify():
		return nil
	case err := <-etcd.Err():
		return fmt.Errorf("embedded etcd in %s ended: %w", s.dir, err)
	case <-timeout.Done():
		return fmt.Errorf("embedded etcd in %s is not ready after %s", s.dir, startTimeout)
	}
}

// Endpoint is the client URL.
func (s *Server) Endpoint() string { return s.endpoint }

// Stop ends the store and gives the folder free.
func (s *Server) Stop() {
	if s.etcd != nil {
		s.etcd.Close()
	}
	_ = s.lock.Close()
}

func configuration(ctx context.Context, dir string, files pki.Files) (*embed.Config, string, error) {
	client, err := freeURL(ctx)
	if err != nil {
		return nil, "", err
	}
	peer, err := freeURL(ctx)
	if err != nil {
		return nil, "", err
	}
	cfg := embed.NewConfig()
	cfg.Name = "isthmus"
	cfg.Dir = filepath.Join(dir, "data")
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	tls := transport.TLSInfo{
		CertFile:       files.Cert(pki.EtcdServer),
		KeyFile:        files.Key(pki.EtcdServer),
		TrustedCAFile:  files.Cert(pki.EtcdCA),
		ClientCertAuth: true,
	}
	cfg.ClientTLSInfo, cfg.PeerTLSInfo = tls, tls
	cfg.QuotaBackendBytes = quotaBytes
	cfg.LogLevel = "error"
	cfg.LogOutputs = []string{"stderr"}
	// kube-apiserver compacts by itself; this bounds a store whose endpoint
	// is stopped between compactions.
	cfg.AutoCompactionMode = "periodic"
	cfg.AutoCompactionRetention = "30m"
	return cfg, client.String(), nil
}

func freeURL(ctx context.Context) (url.URL, error) {
	var listen net.ListenConfig
	l, err := listen.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return url.URL{}, fmt.Errorf("find a free loopback port for etcd: %w", err)
	}
	defer l.Close()
	return url.URL{Scheme: "https", Host: l.Addr().String()}, nil
}

// acquire takes an exclusive lock that ends with the process.
func acquire(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock of the data directory: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("%s is in use by another process: stop it, or choose another --data-dir", filepath.Dir(path))
	}
	return f, nil
}
