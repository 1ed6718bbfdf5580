package membership

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"strings"
	"time"
)

// validity is a span of time in which a credential works; zero times are
// unknown.
type validity struct {
	notBefore, notAfter time.Time
}

// tokenValidity reads iat and exp of a JWT without checking its signature:
// that is the member's job. A token that is no JWT has no known end.
func tokenValidity(token string) validity {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return validity{}
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return validity{}
	}
	var claims struct {
		IssuedAt  float64 `json:"iat"`
		NotBefore float64 `json:"nbf"`
		Expires   float64 `json:"exp"`
	}
	if err := json.Unmarshal(payload, &claims); err != nil {
		return validity{}
	}
	v := validity{notBefore: numericDate(claims.IssuedAt), notAfter: numericDate(claims.Expires)}
	if v.notBefore.IsZero() {
		v.notBefore = numericDate(claims.NotBefore)
	}
	return v
}

// numericDate ignores what cannot be a date.
func numericDate(seconds float64) time.Time {
	if !(seconds > 0 && seconds < 1<<40) {
		return time.Time{}
	}
	return time.Unix(int64(seconds), 0).UTC()
}

// certValidity reads the first certificate of a PEM bundle.
func certValidity(pemCert string) validity {
	block, _ := pem.Decode([]byte(pemCert))
	if block == nil {
		return validity{}
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return validity{}
	}
	return validity{notBefore: cert.NotBefore.UTC(), notAfter: cert.NotAfter.UTC()}
}

// rotateAt is the moment at which 80 % of the life is over. A credential of
// unknown life is never due.
func (v validity) rotateAt() time.Time {
	if v.notAfter.IsZero() || v.notBefore.IsZero() || !v.notAfter.After(v.notBefore) {
		return time.Time{}
	}
	return v.notBefore.Add(v.notAfter.Sub(v.notBefore) / 5 * 4)
}

// overdueAt is when a rotation that should have happened has not: 90 %.
func (v validity) overdueAt() time.Time {
	if v.rotateAt().IsZero() {
		return time.Time{}
	}
	return v.notBefore.Add(v.notAfter.Sub(v.notBefore) / 10 * 9)
}
