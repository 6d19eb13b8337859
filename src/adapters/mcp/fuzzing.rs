//! Invariants over arbitrary output of MCP servers, as functions that panic on a violation. They are for fuzz targets
//! (`tests/fuzz`) and for tests with a corpus and mutations of it; the service does not call them.

use futures::executor::block_on;
use rmcp::model::{CallToolRequest, CallToolRequestParams, ClientJsonRpcMessage, ClientRequest, RequestId};

use crate::adapters::mcp::exchange::{Answer, Exchange, Inbound, Listeners, Purpose, Ticket};
use crate::adapters::mcp::transport::lines::{Line, Lines};

/// Largest accepted message, in bytes.
const LIMIT: usize = 4_096;
/// Longest error text, in bytes, with hidden characters escaped.
const MAX_ERROR: usize = 20_000;
/// The pending request.
const ID: i64 = 7;

/// Output of a server while a call is pending: no byte is lost between lines, and the call is answered at most once, with
/// the result as written or an error of bounded size.
///
/// # Panics
/// On a violation.
pub fn exchange(bytes: &[u8]) {
    let exchange = Exchange::default();
    let ticket = waiting(&exchange);
    let mut lines = Lines::new(bytes, LIMIT);
    let (mut read, mut answers) = (0, 0);
    loop {
        let inbound = match block_on(lines.next()) {
            Line::End => break,
            Line::Message(line) => {
                assert!(line.len() <= LIMIT);
                read += line.len() + 1;
                exchange.inbound(&line)
            }
            Line::TooLong { head, tail, length } => {
                assert!(length > LIMIT && head.len() <= LIMIT && tail.len() <= LIMIT);
                read += length + 1;
                exchange.fail_oversized(&head, &tail)
            }
            Line::Endless { length } => {
                assert!(length / Lines::<&[u8]>::ENDLESS > LIMIT);
                return;
            }
        };
        if let Inbound::Answered { id, .. } = inbound {
            assert_eq!(id, RequestId::Number(ID));
            answers += 1;
            match ticket.take() {
                // As written, unless text that is not UTF-8 or not JSON had to be repaired.
                Some(Answer::Result { result, bytes }) => assert!(!result.get().is_empty() && bytes <= LIMIT),
                Some(Answer::Error { message, .. }) => assert!(message.len() <= MAX_ERROR),
                Some(Answer::TooLarge { .. } | Answer::Malformed) => {}
                None => unreachable!("the request was answered with nothing"),
            }
        }
    }
    assert!(answers <= 1 && ticket.take().is_none());
    assert!(read == bytes.len() || read == bytes.len() + 1, "{read} of {} bytes were read", bytes.len());
}

/// A call that was sent.
fn waiting(exchange: &Exchange) -> Ticket {
    let ticket = Ticket::new(Purpose::Call, LIMIT, Listeners::default());
    let mut request = CallToolRequest::new(CallToolRequestParams::new("tool"));
    request.extensions.insert(ticket.clone());
    let mut message = ClientJsonRpcMessage::request(ClientRequest::CallToolRequest(request), RequestId::Number(ID));
    exchange.outbound(&mut message);
    ticket
}
