package proxy

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
)

// BodyLimit is kube-apiserver's limit of a request body, in bytes.
const BodyLimit = 3 << 20

// PeekBody reads a body, at most one byte beyond the limit, and returns with it
// a request whose body can be read from its beginning.
func PeekBody(r *http.Request) ([]byte, *http.Request, error) {
	if r.Body == nil {
		return nil, r, nil
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, BodyLimit+1))
	rest := r.Body
	r = r.Clone(r.Context())
	r.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(body), rest), rest}
	if err != nil {
		return nil, r, fmt.Errorf("read the body: %w", err)
	}
	return body, r, nil
}
