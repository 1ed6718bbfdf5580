package pki

import (
	"os"
	"strings"
	"testing"

	"k8s.io/client-go/util/cert"
)

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestEnsureIsStable(t *testing.T) {
	dir := t.TempDir()
	f, err := Ensure(dir, []string{"isthmus.example.com"})
	if err != nil {
		t.Fatal(err)
	}
	before := read(t, f.Cert(Server)) + read(t, f.Key(Server)) + read(t, f.ServiceAccountKey())
	if _, err := Ensure(dir, []string{"isthmus.example.com"}); err != nil {
		t.Fatal(err)
	}
	if after := read(t, f.Cert(Server)) + read(t, f.Key(Server)) + read(t, f.ServiceAccountKey()); after != before {
		t.Error("a second start issued new credentials")
	}
}

func TestEnsureReissuesForNewNames(t *testing.T) {
	dir := t.TempDir()
	if _, err := Ensure(dir, nil); err != nil {
		t.Fatal(err)
	}
	f, err := Ensure(dir, []string{"isthmus.example.com", "192.0.2.7"})
	if err != nil {
		t.Fatal(err)
	}
	certs, err := cert.CertsFromFile(f.Cert(Server))
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"isthmus.example.com", "192.0.2.7", "127.0.0.1", "localhost"} {
		if err := certs[0].VerifyHostname(host); err != nil {
			t.Errorf("the serving certificate does not cover %s: %v", host, err)
		}
	}
}

func TestEnsureRefusesHalfAPair(t *testing.T) {
	dir := t.TempDir()
	f, err := Ensure(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(f.Key(ClientCA)); err != nil {
		t.Fatal(err)
	}
	_, err = Ensure(dir, nil)
	if err == nil || !strings.Contains(err.Error(), f.Key(ClientCA)) {
		t.Errorf("err = %v, want one that names %s", err, f.Key(ClientCA))
	}
}

func TestKeysAreSecret(t *testing.T) {
	f, err := Ensure(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{f.Key(ClientCA), f.Key(Admin), f.ServiceAccountKey()} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, info.Mode().Perm())
		}
	}
}
