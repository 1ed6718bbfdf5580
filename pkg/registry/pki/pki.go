// Package pki makes and keeps the certificates and keys of the endpoint under
// its data directory, so that a first start needs no preparation.
//
//	Ensure(dir) -> ca, client-ca, front-proxy-ca, gateway-ca, etcd-ca
//	            -> server, admin, front-proxy-client, gateway and etcd pairs
//	            -> sa.key / sa.pub
//
// Existing authorities are never replaced. Leaf certificates are issued anew
// when they are about to expire or no longer cover the wanted names.
package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

const (
	authorityLife = 10 * 365 * 24 * time.Hour
	leafLife      = 365 * 24 * time.Hour
	// renewBefore is how long before its end a leaf is issued anew at start.
	renewBefore = 60 * 24 * time.Hour
)

// Files names the files of the data directory's pki folder.
type Files struct{ Dir string }

// Cert is the path of a certificate.
func (f Files) Cert(name string) string { return filepath.Join(f.Dir, name+".crt") }

// Key is the path of a private key.
func (f Files) Key(name string) string { return filepath.Join(f.Dir, name+".key") }

// ServiceAccountKey is the path of the key that signs service account tokens.
func (f Files) ServiceAccountKey() string { return filepath.Join(f.Dir, "sa.key") }

// ServiceAccountPub is the path of the key that verifies service account tokens.
func (f Files) ServiceAccountPub() string { return filepath.Join(f.Dir, "sa.pub") }

// Names of the pairs that Ensure makes.
const (
	ServerCA     = "ca"
	ClientCA     = "client-ca"
	FrontProxyCA = "front-proxy-ca"
	GatewayCA    = "gateway-ca"
	EtcdCA       = "etcd-ca"

	Server           = "server"
	Admin            = "admin"
	FrontProxyClient = "front-proxy-client"
	GatewayServer    = "gateway-server"
	GatewayClient    = "gateway-client"
	EtcdServer       = "etcd-server"
	EtcdClient       = "etcd-client"
)

// Subject describes a leaf certificate.
type Subject struct {
	CommonName    string
	Organizations []string
	Hosts         []string // DNS names and IP addresses
	Server        bool     // for serving
	Client        bool     // for authenticating as a client
	Life          time.Duration
}

// Ensure makes whatever is missing under dir. hosts are the names and
// addresses that the serving certificate must cover beside the loopback ones.
func Ensure(dir string, hosts []string) (Files, error) {
	f := Files{Dir: dir}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return f, fmt.Errorf("create the certificate folder: %w", err)
	}
	for _, ca := range []string{ServerCA, ClientCA, FrontProxyCA, GatewayCA, EtcdCA} {
		if err := f.ensureAuthority(ca); err != nil {
			return f, err
		}
	}
	local := []string{"localhost", "127.0.0.1", "::1"}
	serving := append(slices.Clone(local), "kubernetes", "kubernetes.default", "kubernetes.default.svc")
	leaves := []struct {
		name, ca string
		subject  Subject
	}{
		{Server, ServerCA, Subject{CommonName: "multicluster-apiserver", Hosts: append(serving, hosts...), Server: true}},
		{Admin, ClientCA, Subject{CommonName: "isthmus-admin", Organizations: []string{"system:masters"}, Client: true}},
		{FrontProxyClient, FrontProxyCA, Subject{CommonName: "front-proxy-client", Client: true}},
		{GatewayServer, GatewayCA, Subject{CommonName: "cluster-gateway", Hosts: append(slices.Clone(local), hosts...), Server: true}},
		{GatewayClient, GatewayCA, Subject{CommonName: "isthmus-gateway", Client: true}},
		{EtcdServer, EtcdCA, Subject{CommonName: "etcd", Hosts: local, Server: true, Client: true}},
		{EtcdClient, EtcdCA, Subject{CommonName: "multicluster-apiserver", Client: true}},
	}
	for _, l := range leaves {
		if err := f.ensureLeaf(l.name, l.ca, l.subject); err != nil {
			return f, err
		}
	}
	return f, f.ensureServiceAccountKey()
}

func (f Files) ensureAuthority(name string) error {
	exists, err := bothExist(f.Cert(name), f.Key(name))
	if err != nil || exists {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make the key of authority %s: %w", name, err)
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(now.UnixNano()),
		Subject:               pkix.Name{CommonName: "isthmus-" + name},
		NotBefore:             now.Add(-time.Hour),
		NotAfter:              now.Add(authorityLife),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return fmt.Errorf("make authority %s: %w", name, err)
	}
	return f.write(name, der, key)
}

func (f Files) ensureLeaf(name, ca string, s Subject) error {
	if current, err := cert.CertsFromFile(f.Cert(name)); err == nil && f.covers(current[0], ca, s) {
		if _, err := os.Stat(f.Key(name)); err == nil {
			return nil
		}
	}
	certPEM, keyPEM, err := f.Issue(ca, s)
	if err != nil {
		return fmt.Errorf("issue %s: %w", name, err)
	}
	if err := writeFile(f.Key(name), keyPEM, 0o600); err != nil {
		return err
	}
	return writeFile(f.Cert(name), certPEM, 0o644)
}

func (f Files) covers(c *x509.Certificate, ca string, s Subject) bool {
	if time.Until(c.NotAfter) < renewBefore {
		return false
	}
	authorities, err := cert.CertsFromFile(f.Cert(ca))
	if err != nil || c.CheckSignatureFrom(authorities[0]) != nil {
		return false
	}
	for _, h := range s.Hosts {
		if c.VerifyHostname(h) != nil {
			return false
		}
	}
	return true
}

// Issue signs a new leaf with the named authority and returns certificate and
// key in PEM.
func (f Files) Issue(ca string, s Subject) (certPEM, keyPEM []byte, err error) {
	authorities, err := cert.CertsFromFile(f.Cert(ca))
	if err != nil {
		return nil, nil, fmt.Errorf("read authority %s: %w", ca, err)
	}
	signerKey, err := keyutil.PrivateKeyFromFile(f.Key(ca))
	if err != nil {
		return nil, nil, fmt.Errorf("read the key of authority %s: %w", ca, err)
	}
	signer, ok := signerKey.(crypto.Signer)
	if !ok {
		return nil, nil, fmt.Errorf("key of authority %s cannot sign", ca)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make a key: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, nil, fmt.Errorf("make a serial number: %w", err)
	}
	der, err := x509.CreateCertificate(rand.Reader, s.template(serial), authorities[0], key.Public(), signer)
	if err != nil {
		return nil, nil, fmt.Errorf("sign: %w", err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, nil, fmt.Errorf("encode the key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}), nil
}

func (s Subject) template(serial *big.Int) *x509.Certificate {
	life := s.Life
	if life == 0 {
		life = leafLife
	}
	now := time.Now()
	t := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: s.CommonName, Organization: s.Organizations},
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.Add(life),
		KeyUsage:     x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
	}
	if s.Server {
		t.ExtKeyUsage = append(t.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	if s.Client {
		t.ExtKeyUsage = append(t.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
	}
	for _, h := range s.Hosts {
		if ip := net.ParseIP(h); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else {
			t.DNSNames = append(t.DNSNames, h)
		}
	}
	return t
}

func (f Files) ensureServiceAccountKey() error {
	exists, err := bothExist(f.ServiceAccountKey(), f.ServiceAccountPub())
	if err != nil || exists {
		return err
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return fmt.Errorf("make the service account key: %w", err)
	}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return fmt.Errorf("encode the service account key: %w", err)
	}
	pub, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return fmt.Errorf("encode the service account public key: %w", err)
	}
	if err := writeFile(f.ServiceAccountKey(), keyPEM, 0o600); err != nil {
		return err
	}
	return writeFile(f.ServiceAccountPub(), pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: pub}), 0o644)
}

func (f Files) write(name string, der []byte, key *ecdsa.PrivateKey) error {
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return fmt.Errorf("encode the key of %s: %w", name, err)
	}
	if err := writeFile(f.Key(name), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}), 0o600); err != nil {
		return err
	}
	return writeFile(f.Cert(name), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644)
}

// bothExist refuses half a pair: making the missing half anew would silently
// invalidate whatever the other half has signed.
func bothExist(a, b string) (bool, error) {
	_, errA := os.Stat(a)
	_, errB := os.Stat(b)
	switch {
	case errA == nil && errB == nil:
		return true, nil
	case errors.Is(errA, os.ErrNotExist) && errors.Is(errB, os.ErrNotExist):
		return false, nil
	case errA == nil:
		return false, fmt.Errorf("%s exists but %s does not: restore it, or remove both to make a new pair", a, b)
	case errB == nil:
		return false, fmt.Errorf("%s exists but %s does not: restore it, or remove both to make a new pair", b, a)
	}
	return false, errors.Join(errA, errB)
}

// writeFile replaces the file atomically.
func writeFile(path string, data []byte, mode os.FileMode) error {
	tmp := path + ".tmp"
	if err := os.WriteFile(tmp, data, mode); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.Rename(tmp, path); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
