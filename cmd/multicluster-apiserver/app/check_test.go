package app

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/server/options"
)

func TestCheckSaysWhatIsWrong(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "none.crt")
	for name, c := range map[string]struct {
		change func(*Options)
		says   []string
	}{
		"defaults":         {func(*Options) {}, nil},
		"a port too large": {func(o *Options) { o.Kube.SecureServing.BindPort = 99999 }, []string{"--secure-port 99999"}},
		"no certificate": {func(o *Options) {
			o.Kube.SecureServing.ServerCert.CertKey = options.CertKey{CertFile: missing, KeyFile: missing}
		}, []string{"--tls-cert-file", missing}},
		"a certificate without its key": {func(o *Options) { o.Kube.SecureServing.ServerCert.CertKey.CertFile = missing }, []string{"--tls-cert-file"}},
		"two things": {func(o *Options) {
			o.Kube.SecureServing.BindPort = -1
			o.MemberResources = []string{"nonsense"}
		}, []string{"--secure-port -1", "; ", "nonsense"}},
	} {
		o := NewOptions()
		c.change(o)
		err := o.check()
		if (err == nil) != (len(c.says) == 0) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, part := range c.says {
			if !strings.Contains(err.Error(), part) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s: %q says nothing of %q", name, err, part)
			}
		}
	}
}

func TestCheckPort(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o := NewOptions().Kube.SecureServing
	o.BindAddress, o.BindPort = net.IPv4(127, 0, 0, 1), l.Addr().(*net.TCPAddr).Port
	if err := checkPort(t.Context(), o); err == nil || !strings.Contains(err.Error(), "another process listens there") {
		t.Errorf("a port that is taken: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := checkPort(t.Context(), o); err != nil {
		t.Errorf("a free port: %v", err)
	}
	o.BindAddress = net.IPv4(203, 0, 113, 1)
	if err := checkPort(t.Context(), o); err == nil || !strings.Contains(err.Error(), "--bind-address 203.0.113.1") {
		t.Errorf("an address of another machine: %v", err)
	}
}

func TestCheckFolder(t *testing.T) {
	dir := t.TempDir()
	if err := checkFolder(dir); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if err := checkFolder(filepath.Join(dir, "none")); err == nil || !strings.Contains(err.Error(), "--data-dir") {
		t.Errorf("a folder that cannot be written: %v", err)
	}
}

func TestVersion(t *testing.T) {
	root := NewCommand()
	for _, args := range [][]string{{"version"}, {"--version"}} {
		out, err := execute(t, root, args...)
		if err != nil || !strings.HasPrefix(out, "multicluster-apiserver ") || !strings.Contains(out, "(Kubernetes v") || strings.Count(out, "\n") != 1 {
			t.Errorf("%v: %q, %v", args, out, err)
		}
	}
}
