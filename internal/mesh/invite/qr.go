package invite

import (
	"fmt"

	qr "github.com/piglig/go-qr"
)

// QR draws the code as rows of '#' and ' ', without a quiet zone. Letters, figures and dashes in capitals take the dense
// form of a QR code.
func QR(code string) ([]string, error) {
	q, err := qr.EncodeText(code, qr.Medium)
	if err != nil {
		return nil, fmt.Errorf("the invite does not fit in a QR code: %w", err)
	}
	rows := make([]string, q.Size())
	for y := range rows {
		row := make([]byte, q.Size())
		for x := range row {
			row[x] = ' '
			if q.Module(x, y) {
				row[x] = '#'
			}
		}
		rows[y] = string(row)
	}
	return rows, nil
}
