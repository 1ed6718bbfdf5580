package lab

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// pki is the folder of a member's keys and certificates. What exists is kept,
// so that a restart keeps every kubeconfig valid.
type pki struct{ dir string }

func (p pki) path(name string) string { return filepath.Join(p.dir, name) }

type certRequest struct {
	name   string // file name without suffix
	ca     string
	cn     string
	groups []string
	server bool
	dns    []string
}

// certificates lists what one member needs beside its two CAs.
func certificates() []certRequest {
	return []certRequest{
		{
			name: "apiserver", ca: "ca", cn: "kube-apiserver", server: true,
			dns: []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"},
		},
		{name: "kubelet", ca: "ca", cn: "kubelet", server: true, dns: []string{"localhost"}},
		{name: "metrics-server", ca: "ca", cn: "metrics-server", server: true, dns: []string{"localhost", "metrics-server.kube-system.svc"}},
		{name: "kubelet-client", ca: "ca", cn: "kube-apiserver-kubelet-client", groups: []string{"system:masters"}},
		{name: "front-proxy-client", ca: "front-proxy-ca", cn: "front-proxy-client"},
		{name: "admin", ca: "ca", cn: "admin", groups: []string{"system:masters"}},
		{name: "controller-manager", ca: "ca", cn: "system:kube-controller-manager"},
		{name: "scheduler", ca: "ca", cn: "system:kube-scheduler"},
		{name: "kwok", ca: "ca", cn: "kwok", groups: []string{"system:masters"}},
		{name: "metrics-reader", ca: "ca", cn: "metrics-server", groups: []string{"system:masters"}},
	}
}

func (p pki) ensure() error {
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return fmt.Errorf("certificates: %w", err)
	}
	for _, ca := range []string{"ca", "front-proxy-ca"} {
		if p.has(ca) {
			continue
		}
		if err := p.issueCA(ca); err != nil {
			return fmt.Errorf("certificate %s: %w", ca, err)
		}
	}
	for _, req := range certificates() {
		if p.has(req.name) {
			continue
		}
		if err := p.issue(req); err != nil {
			return fmt.Errorf("certificate %s: %w", req.name, err)
		}
	}
	if _, err := os.Stat(p.path("sa.pub")); err == nil {
		return nil
	}
	return p.serviceAccountKey()
}

// has: the certificate is written last, so its presence means a whole pair.
func (p pki) has(name string) bool {
	_, err := os.Stat(p.path(name + ".crt"))
	return err == nil
}

func (p pki) issueCA(name string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template, err := certTemplate(pkix.Name{CommonName: name})
	if err != nil {
		return err
	}
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature
	return p.sign(name, template, template, key, key)
}

func (p pki) issue(req certRequest) error {
	caCert, caKey, err := p.load(req.ca)
	if err != nil {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template, err := certTemplate(pkix.Name{CommonName: req.cn, Organization: req.groups})
	if err != nil {
		return err
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	if req.server {
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		template.DNSNames = req.dns
		template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv4(10, 96, 0, 1)}
	}
	return p.sign(req.name, template, caCert, key, caKey)
}

func certTemplate(subject pkix.Name) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	return &x509.Certificate{
		SerialNumber: serial, Subject: subject,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(10, 0, 0),
	}, nil
}

func (p pki) sign(name string, template, parent *x509.Certificate, key *ecdsa.PrivateKey, signer crypto.Signer) error {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return err
	}
	if err := p.writeKey(name+".key", key); err != nil {
		return err
	}
	return writeFile(p.path(name+".crt"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644)
}

func (p pki) writeKey(file string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return writeFile(p.path(file), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600)
}

func (p pki) serviceAccountKey() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("service account key: %w", err)
	}
	if err := p.writeKey("sa.key", key); err != nil {
		return fmt.Errorf("service account key: %w", err)
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return fmt.Errorf("service account key: %w", err)
	}
	return writeFile(p.path("sa.pub"), pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), 0o644)
}

func (p pki) load(name string) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	certPEM, err := os.ReadFile(p.path(name + ".crt"))
	if err != nil {
		return nil, nil, err
	}
	keyPEM, err := os.ReadFile(p.path(name + ".key"))
	if err != nil {
		return nil, nil, err
	}
	certBlock, _ := pem.Decode(certPEM)
	keyBlock, _ := pem.Decode(keyPEM)
	if certBlock == nil || keyBlock == nil {
		return nil, nil, errors.New("not PEM")
	}
	cert, err := x509.ParseCertificate(certBlock.Bytes)
	if err != nil {
		return nil, nil, err
	}
	key, err := x509.ParseECPrivateKey(keyBlock.Bytes)
	return cert, key, err
}
