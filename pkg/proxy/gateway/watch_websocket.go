package gateway

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"golang.org/x/net/websocket"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	"k8s.io/streaming/pkg/httpstream/wsstream"
)

// serveWebSocket sends the events as messages, one each: browsers read a watch
// that way. JSON goes as text, protobuf as binary without the length before it.
func (x *watchStream) serveWebSocket(ctx context.Context, cancel context.CancelFunc, w http.ResponseWriter, r *http.Request) {
	websocket.Handler(func(conn *websocket.Conn) {
		defer func() { _ = conn.Close() }()
		go func() {
			// Returns when the client closes: it has nothing to say.
			wsstream.IgnoreReceivesWithLogger(klog.FromContext(ctx), conn, 0)
			cancel()
		}()
		x.body = &messageBody{conn: conn, text: x.encoder.media == runtime.ContentTypeJSON, timeout: x.handler.WriteTimeout}
		x.serve(ctx, cancel)
	}).ServeHTTP(w, r)
}

// messageBody sends each write as one message.
type messageBody struct {
	conn    *websocket.Conn
	text    bool
	timeout time.Duration
}

func (b *messageBody) write(p []byte) error {
	if len(p) == 0 {
		return nil
	}
	if err := b.conn.SetWriteDeadline(time.Now().Add(b.timeout)); err != nil {
		return fmt.Errorf("%w: %w", errClientGone, err)
	}
	var message any = p
	if b.text {
		message = string(p)
	}
	if err := websocket.Message.Send(b.conn, message); err != nil {
		return fmt.Errorf("%w: %w", errClientGone, err)
	}
	return nil
}

func (b *messageBody) send(p []byte) error { return b.write(p) }
func (b *messageBody) flush() error        { return nil }
func (b *messageBody) close()              {}
